-- One checkpoint with its writes and items.
-- ARGV 1 ns, 2 id (none: the head), 3 milliseconds to live from now on (none: leave it),
-- 4-6 epoch, version and token of a write, and if that is in the thread's past, 7 runs of the
-- numbers that the caller has already.
-- Answers {status, epoch, version, tokens, {id, row, orphan, writes, next number, numbers, items,
-- left out}}; instead of items 0 if the refs cannot be read here.
if not epoch then return is_broken() and {'BROKEN'} or {'NONE'} end
local ns, id = ARGV[1], ARGV[2]
local head = call('HGET', H, 'h' .. ns)
if id == '' then id = head end
if not id then return {'NONE'} end
local row = call('HGET', H, 'c' .. id .. '\0' .. ns)
if not row then return id == head and {'HEADLESS', head} or {'NONE'} end
if ARGV[3] ~= '' then renew(ARGV[3]) end
local parent = parent_of(row)
local orphan = parent and call('HEXISTS', H, 'c' .. parent .. '\0' .. ns) == 0 and 1 or 0
local writes = rows_of_writes(id .. '\0' .. ns)
local held = ARGV[4] ~= '' and has_seen(ARGV[4], ARGV[5], ARGV[6]) and cmsgpack.unpack(ARGV[7]) or {}
local numbers, items, asked, left_out = {}, {}, {}, 0

-- The last number of the held run that `n` is in.
local function held_until(n)
  for k = 1, #held, 2 do
    if n >= held[k] and n < held[k] + held[k + 1] then return held[k] + held[k + 1] - 1 end
  end
  return nil
end

-- Runs as refs have them: each starts so far behind the end of the one before.
local function starts(gaps)
  local runs, last = {}, 0
  for k = 1, #gaps, 2 do
    runs[k], runs[k + 1] = last + gaps[k], gaps[k + 1]
    last = runs[k] + runs[k + 1]
  end
  return runs
end

local function want(runs)
  for k = 1, #runs, 2 do
    -- No further than there are items: nothing is verified here, and a damaged count may be large.
    local n, last = math.max(runs[k], 0), math.min(runs[k] + runs[k + 1], following) - 1
    while n <= last do
      local skip = held_until(n)
      if skip then
        left_out = 1
        n = skip
      elseif not asked[n] then
        asked[n] = true
        numbers[#numbers + 1] = n
      end
      n = n + 1
    end
  end
end

-- Fetch what is wanted and not there yet.
local function fetch()
  for from = #items + 1, #numbers, MANY do
    local fields = {}
    for k = from, math.min(from + MANY - 1, #numbers) do
      fields[#fields + 1] = 'i' .. numbers[k]
    end
    for _, item in ipairs(call('HMGET', H, unpack(fields))) do items[#items + 1] = item end
  end
end

local function collect()
  local refs = cmsgpack.unpack(refs_of(row))
  for _, packed in ipairs(writes) do
    for _, write in ipairs(packed and rows_in(packed) or {}) do
      for _, ref in ipairs(cmsgpack.unpack(refs_of(write[3]))) do refs[#refs + 1] = ref end
    end
  end
  -- Spines are read anew even if they are held: they say what else is needed. A spine item is a
  -- checksum, the byte 2, and runs.
  local had = held
  held = {}
  for _, ref in ipairs(refs) do want(starts(ref[4] or {})) end
  fetch()
  held = had
  for k = 1, #items do
    if items[k] and string.byte(items[k], 9) == 2 then
      want(cmsgpack.unpack(string.sub(items[k], 10)))
    end
  end
  for _, ref in ipairs(refs) do want(starts(ref[2])) end
  fetch()
end

if not pcall(collect) then
  return state('OK', {id, row, orphan, writes, following, '', 0, 0})
end
return state('OK', {id, row, orphan, writes, following, cmsgpack.pack(numbers), items, left_out})
