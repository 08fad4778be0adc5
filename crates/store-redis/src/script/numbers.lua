-- Exact arithmetic on doubles.
--
-- A double holds whole numbers exactly up to 2^53, and the limiter multiplies numbers of 53 bits by
-- numbers of 33. A product that could pass 2^53 is kept in two limbs of base 2^40. Nearly always it
-- cannot, and one multiplication and one comparison are enough.
--
-- For whole a < 2^53 and b > 0, a % b is exact and (a - a % b) / b is the whole quotient.

-- a * b in two limbs, the upper one in units of 2^40. The smaller factor is below 2^39, the larger
-- below 2^53.
local function product(a, b)
  if a < b then a, b = b, a end
  local a0, b0 = a % TWO_20, b % TWO_20
  local a1, b1 = (a - a0) / TWO_20, (b - b0) / TWO_20
  local middle, other = a1 * b0, a0 * b1
  local middle0, other0 = middle % TWO_20, other % TWO_20
  local low = a0 * b0 + (middle0 + other0) * TWO_20
  local low0 = low % TWO_40
  local high = a1 * b1 + (middle - middle0) / TWO_20 + (other - other0) / TWO_20
  return high + (low - low0) / TWO_40, low0
end

-- The quotient of a * b by c, and the remainder. The quotient and c must be below 2^53. One of a
-- and b, and one of quotient and c, is below 2^39.
local function multiply_divide(a, b, c)
  local near = a * b
  if near < TWO_53 then
    local rest = near % c
    return (near - rest) / c, rest
  end
  local high, low = product(a, b)
  local quotient = near / c
  quotient = quotient - quotient % 1
  local rest
  -- The first guess is off by a few at most, and each round corrects it. Three rounds are more than
  -- enough. The loop is bounded whatever values are in Redis.
  for _ = 1, 4 do
    local by_high, by_low = product(quotient, c)
    rest = (high - by_high) * TWO_40 + (low - by_low)
    if rest >= 0 and rest < c then break end
    local off = rest / c
    quotient = quotient + (off - off % 1)
  end
  return quotient, rest
end

-- a * b + c + d for an answer of 64 bits: the lower 53 bits and the upper ones; at most 2^64 - 1.
-- One of a and b is below 2^39.
local function wide(a, b, c, d)
  local high, low = product(a, b)
  local c0, d0 = c % TWO_40, d % TWO_40
  low = low + c0 + d0
  local low0 = low % TWO_40
  high = high + (low - low0) / TWO_40 + (c - c0) / TWO_40 + (d - d0) / TWO_40
  local high0 = high % TWO_13
  local above = (high - high0) / TWO_13
  if above > 2047 then return MAX, 2047 end
  return high0 * TWO_40 + low0, above
end

-- What is used after these hits were charged.
local function charged(used, hits)
  local most = CHARGED_MAX
  if used > most then most = used end
  if used + hits > most then return most end
  return used + hits
end

-- How many of the denied `hits` stay in a bucket that has used this much: debt is at most one
-- burst, except where they count in full.
local function debt(refused, burst, used, hits)
  if refused == NOT_COUNTED then return 0 end
  if refused == IN_FULL then return charged(used, hits) - used end
  local spare = 2 * burst - used
  if spare <= 0 then return 0 end
  if hits < spare then return hits end
  return spare
end
