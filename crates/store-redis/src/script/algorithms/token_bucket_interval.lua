-- token_bucket_interval.rs for Redis. The first register is the number of missing hits.

-- How long until this many are refilled: the lower 53 bits and, if any, the upper ones. `requests`
-- is not 0.
local function steps_in(missing, requests, window, to_edge)
  if missing == 0 then return 0 end
  local further = missing - 1
  further = (further - further % requests) / requests
  local near = further * window + to_edge
  if near < TWO_53 then return near end
  return wide(window, further, to_edge, 0)
end

local function token_bucket_interval(kind, hits, taken_at, now, seen, missing, _, _, window, requests, burst, refused)
  local elapsed = now % window
  local start = now - elapsed
  local edges = (start - (seen - seen % window)) / window
  -- Above 2^53 this is not exact, and then it is more than can be missing either way.
  local before = missing - requests * edges
  if before < 0 then before = 0 end
  local after, allowed = before, true
  if kind == TAKE then
    after = before + hits
    if after > burst then
      allowed = false
      after = before + debt(refused, burst, before, hits)
    end
  elseif kind == CHARGE then
    after = charged(before, hits)
  else
    local weighs = hits
    if kind == GIVE_BACK then
      -- What was refilled since might have met a full bucket without the take.
      weighs = hits - requests * ((start - (taken_at - taken_at % window)) / window)
      if weighs < 0 then weighs = 0 end
    end
    after = before - weighs
    if after < 0 then after = 0 end
  end
  if after > MAX then after = MAX end

  local remaining = burst - after
  if remaining < 0 then remaining = 0 end
  local to_edge = window - elapsed
  local reset, retry, reset_above, retry_above = window, nil, nil, nil
  if requests > 0 then
    reset, reset_above = steps_in(after, requests, window, to_edge)
  elseif after == 0 then
    reset = 0
  end
  if allowed then
    retry = 0
  elseif hits <= burst then
    local short = after - (burst - hits)
    if short <= 0 then
      retry = 0
    elseif requests > 0 then
      retry, retry_above = steps_in(short, requests, window, to_edge)
    end
  end
  return after, 0, after ~= before, allowed, before, remaining, reset, retry, reset_above, retry_above
end
