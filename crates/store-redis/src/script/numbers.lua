-- Exact arithmetic on doubles.
--
-- A double holds whole numbers exactly up to 2^53, and the limiter multiplies two numbers of 53
-- bits. A product that could pass 2^53 is kept as a double and what rounding took from it. Nearly
-- always it cannot, and one multiplication and one comparison are enough.
--
-- For whole a < 2^53 and b > 0, a % b is exact and (a - a % b) / b is the whole quotient.

-- a * b as two numbers whose sum it is, the second at most half a unit of the first's last place
-- (T. J. Dekker, 1971). Halves of 26 bits, with their signs, have exact products.
local function product(a, b)
  local near = a * b
  local split = a * SPLITTER
  local a1 = split - (split - a)
  local a0 = a - a1
  split = b * SPLITTER
  local b1 = split - (split - b)
  local b0 = b - b1
  return near, a1 * b1 - near + a1 * b0 + a0 * b1 + a0 * b0
end

-- The quotient of a * b by c, and the remainder. The quotient and c must be below 2^53.
local function multiply_divide(a, b, c)
  local near = a * b
  if near < TWO_53 then
    local rest = near % c
    return (near - rest) / c, rest
  end
  local taken
  near, taken = product(a, b)
  local quotient = near / c
  quotient = quotient - quotient % 1
  local rest
  -- The first guess is off by a few at most, and each round corrects it. Three rounds are more than
  -- enough. The loop is bounded whatever values are in Redis.
  for _ = 1, 4 do
    local by_near, by_taken = product(quotient, c)
    -- The two are so close that their difference is exact.
    rest = (near - by_near) + (taken - by_taken)
    if rest >= 0 and rest < c then break end
    local off = rest / c
    quotient = quotient + (off - off % 1)
  end
  return quotient, rest
end

-- a * b + c + d for an answer of 64 bits: the lower 53 bits and the upper ones; at most 2^64 - 1.
local function wide(a, b, c, d)
  local near, taken = product(a, b)
  if near > TWO_53 * 2048 then return MAX, 2047 end
  local low, high = 0, 0
  for _, part in ipairs({ near, taken, c, d }) do
    local part0 = part % TWO_40
    low, high = low + part0, high + (part - part0) / TWO_40
  end
  local low0 = low % TWO_40
  high = high + (low - low0) / TWO_40
  local high0 = high % TWO_13
  local above = (high - high0) / TWO_13
  if above > 2047 then return MAX, 2047 end
  return high0 * TWO_40 + low0, above
end

-- What is used after these hits were charged.
local function charged(used, hits)
  local most = MAX
  if used > most then most = used end
  if used + hits > most then return most end
  return used + hits
end

-- How many of the denied `hits` stay in a bucket that has used this much: debt is at most one
-- burst, except where they count in full.
local function debt(refused, burst, used, hits)
  if refused == NOT_COUNTED then return 0 end
  if refused == IN_FULL then return charged(used, hits) - used end
  local spare = 2 * burst
  if spare > MAX then spare = MAX end
  spare = spare - used
  if spare <= 0 then return 0 end
  if hits < spare then return hits end
  return spare
end
