-- token_bucket.rs for Redis. The registers are whole missing hits, and the rest in 1/window of a
-- hit.
--
-- What Rust counts in 1/per_us of a hit, in 128 bits, is two numbers here: whole hits, and parts of
-- which per_us make one. Taking hits is then an addition of small numbers, and only time has to be
-- multiplied.

-- How much `elapsed` refills: whole hits and parts. More than `most` and one does not matter.
local function fills(elapsed, rate_hits, per_us, most)
  local near = elapsed * rate_hits
  if near < TWO_53 then
    local parts = near % per_us
    return (near - parts) / per_us, parts
  end
  if near / per_us > most + 2 then return most + 1, 0 end
  return multiply_divide(elapsed, rate_hits, per_us)
end

-- How long the rate takes to refill this much: the lower 53 bits and, if any, the upper ones.
local function fills_in(whole, parts, rate_hits, per_us)
  local near = whole * per_us + parts
  if near < TWO_53 then
    local rest = near % rate_hits
    if rest > 0 then return (near - rest) / rate_hits + 1 end
    return near / rate_hits
  end
  -- By the rate first, so that the exact product stays small.
  local per_rest, parts_rest = per_us % rate_hits, parts % rate_hits
  local quotient, rest = multiply_divide(per_rest, whole, rate_hits)
  rest = rest + parts_rest
  if rest > rate_hits then
    quotient = quotient + 2
  elseif rest > 0 then
    quotient = quotient + 1
  end
  return wide((per_us - per_rest) / rate_hits, whole, (parts - parts_rest) / rate_hits, quotient)
end

local function token_bucket(kind, hits, taken_at, now, seen, whole, part, _, window, _, burst, refused, rate_hits, per_us,
    reduced_by)
  local parts = part % reduced_by
  parts = (part - parts) / reduced_by + (parts > 0 and 1 or 0)
  if parts >= per_us then
    local over = parts % per_us
    whole, parts = whole + (parts - over) / per_us, over
  end
  if now > seen then
    local filled, filled_parts = fills(now - seen, rate_hits, per_us, whole)
    whole, parts = whole - filled, parts - filled_parts
    if parts < 0 then whole, parts = whole - 1, parts + per_us end
    if whole < 0 then whole, parts = 0, 0 end
  end
  local used = whole
  if parts > 0 then used = whole + 1 end

  local after, after_parts, allowed = whole, parts, true
  if kind == TAKE then
    after = whole + hits
    if after > burst or after == burst and parts > 0 then
      allowed = false
      after = whole + debt(refused, burst, used, hits)
    end
  elseif kind == CHARGE then
    after = whole + (charged(used, hits) - used)
  else
    local weighs, weighs_parts = hits, 0
    if kind == GIVE_BACK then
      -- What was refilled since might have met a full bucket without the take.
      local come, come_parts = fills(now - taken_at, rate_hits, per_us, hits)
      weighs, weighs_parts = hits - come, -come_parts
      if weighs_parts < 0 then weighs, weighs_parts = weighs - 1, weighs_parts + per_us end
      if weighs < 0 then weighs, weighs_parts = 0, 0 end
    end
    after, after_parts = whole - weighs, parts - weighs_parts
    if after_parts < 0 then after, after_parts = after - 1, after_parts + per_us end
    if after < 0 then after, after_parts = 0, 0 end
  end

  local remaining = burst - after
  if after_parts > 0 then remaining = remaining - 1 end
  if remaining < 0 then remaining = 0 end
  local reset, retry, reset_above, retry_above = window, nil, nil, nil
  if rate_hits > 0 then reset, reset_above = fills_in(after, after_parts, rate_hits, per_us) end
  if allowed then
    retry = 0
  elseif hits <= burst and rate_hits > 0 then
    local short = after - (burst - hits)
    if short < 0 then
      retry = 0
    else
      retry, retry_above = fills_in(short, after_parts, rate_hits, per_us)
    end
  end
  local changed = after ~= whole or after_parts ~= parts
  if after > MAX then after = MAX end
  return after, after_parts * reduced_by, changed, allowed, used, remaining, reset, retry, reset_above, retry_above
end
