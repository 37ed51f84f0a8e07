-- Every script begins with this: the state of one thread, and the rules that all of them share.
--
-- A thread is two keys. The hash H holds everything, told apart by the first letter of the field:
--   e epoch   v number of the last write   k tokens of the last writes, newest first
--   l its own time to live, if it has one   q how many checkpoints there are   n next number
--   h<ns> head   r<run> a run that wrote   i<n> item   a<n>.<k> what it claims of artifact stores
--   c<place> checkpoint   w<page>:<place> the tasks that wrote at a place: how many, and of each the
--   length of its rows and its rows, if they are few and on the first page, or APART and its digest
--   t<digest> rows of writes of one task at one place, if they are not on a page
--   d the greatest id of a thread of this name that was deleted: alone, and for some days, after it
-- and the sorted set X holds the places of its checkpoints. A place is `id NUL ns`.
--
-- Scripts are not rolled back, so everything is checked before anything is written.
local H, X = KEYS[1], KEYS[2]
local call = redis.call
local TOKEN, TOKENS, DIGEST, MANY = 6, 32, 16, 1000
local PAGE, INSIDE, APART = 1024, 256, 0xFFFFFFFF
local UUID, SPELLED = 0xFFFF, string.gsub('XXXX-XX-XX-XX-XXXXXX', 'X', '%%02x')

local found = call('HMGET', H, 'e', 'v', 'k', 'l', 'n', 'q', 'd')
local epoch, version, tokens, life = found[1], tonumber(found[2]), found[3], found[4]
local following, checkpoints = tonumber(found[5] or 0), tonumber(found[6] or 0)
local tomb, is_new = found[7], not epoch

-- A thread whose own numbers cannot be read is no thread, but damage.
local is_damaged = epoch and not (version and tokens and following and checkpoints)
if is_damaged then epoch = nil end

-- What a write will set, in one command at its end: a call from a script costs more than its work.
local fields = {}

local function set(field, value)
  fields[#fields + 1] = field
  fields[#fields + 1] = value
end

local function state(status, more)
  return {status, epoch, version, tokens, more}
end

-- The hash is gone. If the set is there, something took half of the thread, unless it just expires.
local function is_broken()
  if is_damaged then return true end
  local left = call('PTTL', X)
  return left == -1 or left > 1000
end

-- Whether a write is in the thread's past.
local function has_seen(its_epoch, its_version, token)
  local age = version - tonumber(its_version)
  local at = age * TOKEN
  return its_epoch == epoch and age >= 0 and string.sub(tokens, at + 1, at + TOKEN) == token
end

-- By bytes: Lua's own `<` goes by the locale of the server.
local function less(a, b)
  for k = 1, math.min(#a, #b) do
    local x, y = string.byte(a, k), string.byte(b, k)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- Whether a run goes on from a checkpoint of the root that was deleted with its thread.
local function is_deleted(root)
  if root == '' then return false end
  if epoch and call('HEXISTS', H, 'c' .. root .. '\0') == 1 then return false end
  return tomb and not less(tomb, root)
end

-- Writers: ARGV 1 token of this write, 2-4 epoch, version and token that it relies on, 5 the epoch
-- of a new thread (none: it must be there), 6 milliseconds to live, 7 a run to note, 8 tokens of
-- writes that must have arrived before this one. An answer means that nothing is to be written.
local function refused()
  for k = 1, #ARGV[8], TOKEN do
    local at = string.find(tokens or '', string.sub(ARGV[8], k, k + TOKEN - 1), 1, true)
    if not at or at % TOKEN ~= 1 then return {'EARLY'} end
  end
  if not epoch then
    if is_broken() then return {'BROKEN'} end
    if ARGV[2] ~= '' or ARGV[5] == '' then return {'STALE'} end
    epoch, version, tokens = ARGV[5], 0, ''
    return nil
  end
  local at = string.find(tokens, ARGV[1], 1, true)
  if at and at % TOKEN == 1 then -- a retry: it was done the first time
    call('HSET', H, 'v', version) -- so that WAIT on this connection waits for that write
    return state('OK')
  end
  if ARGV[2] ~= '' and not has_seen(ARGV[2], ARGV[3], ARGV[4]) then return state('STALE') end
  return nil
end

-- New items: ARGV[at] the first number, ARGV[at + 1] how many, then pairs of field and item.
local function taken(at)
  local base, count = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  for n = base, math.min(base + count, following) - 1 do
    if call('HEXISTS', H, 'i' .. n) == 1 then return state('TAKEN', following) end
  end
  return nil
end

local function store_items(at)
  for k = at + 2, #ARGV, 2 * MANY do
    call('HSET', H, unpack(ARGV, k, math.min(k + 2 * MANY - 1, #ARGV)))
  end
  local after = tonumber(ARGV[at]) + tonumber(ARGV[at + 1])
  if #ARGV > at + 1 and after > following then set('n', after) end
end

local function renew(ttl)
  ttl = life or ttl
  if ttl ~= '' and ttl ~= '0' then
    call('PEXPIRE', H, ttl)
    call('PEXPIRE', X, ttl)
  end
end

-- The last act of every write.
local function signed()
  version = version + 1
  tokens = ARGV[1] .. string.sub(tokens, 1, TOKEN * (TOKENS - 1))
  set('e', epoch)
  set('v', version)
  set('k', tokens)
  if ARGV[7] ~= '' then set('r' .. ARGV[7], '') end
  call('HSET', H, unpack(fields))
  if is_new and tomb then call('PERSIST', H) end
  renew(ARGV[6])
  return state('OK')
end

-- A stored row is `length of parent + 1, length of refs, parent, refs, rest`; UUID is the length of
-- a parent of 16 bytes that is spelled as a UUID.
local function parent_of(row)
  if #row < 22 then return nil end -- the reader will notice
  local length = struct.unpack('>I2', row)
  if length == UUID then return string.format(SPELLED, string.byte(row, 7, 22)) end
  return length > 0 and string.sub(row, 7, 5 + length) or nil
end

local function refs_of(row)
  local parent, length = struct.unpack('>I2I4', row)
  local from = 6 + (parent == UUID and 16 or math.max(parent - 1, 0))
  return string.sub(row, from + 1, from + length)
end

-- The rows of one task: idx, count, length and row of each.
local function rows_in(packed)
  local rows, at = {}, 1
  while at <= #packed do
    local idx, count, length = struct.unpack('>i4I4I4', packed, at)
    rows[#rows + 1] = {idx, count, string.sub(packed, at + 12, at + 11 + length)}
    at = at + 12 + length
    if at > #packed + 1 then error('the rows of a task are cut off') end
  end
  return rows
end

-- Whether these are the rows of a task of that name: it stands behind the refs of each row.
local function is_of(packed, name)
  local _, refs = struct.unpack('>I2I4', packed, 13)
  return string.sub(packed, 20 + refs, 19 + refs + #name) == name
end

-- The tasks on a page: rows, or `false` and the digest if they are apart. Fails if it is not whole.
local function tasks_on(page)
  local tasks, count, at = {}, struct.unpack('>I2', page)
  while at <= #page do
    local length = struct.unpack('>I4', page, at)
    local is_apart = length == APART
    if is_apart then length = DIGEST end
    at = at + 4
    if length == 0 or at + length - 1 > #page then error('a page of tasks is cut off') end
    local some = string.sub(page, at, at + length - 1)
    tasks[#tasks + 1] = is_apart and {false, some} or {some}
    at = at + length
  end
  if #tasks ~= count then error('a task on a page is missing') end
  return tasks
end

-- The packed rows of each task of a checkpoint; `false` for one that is listed and not there. What
-- cannot be taken apart is handed on as it is: the reader will notice.
local function rows_of_writes(place)
  local rows, page = {}, 0
  while true do
    local listed = call('HGET', H, 'w' .. page .. ':' .. place)
    if not listed then return rows end
    local is_good, tasks = pcall(tasks_on, listed)
    for _, task in ipairs(is_good and tasks or {{listed}}) do
      rows[#rows + 1] = task[1] or call('HGET', H, 't' .. task[2])
    end
    page = page + 1
  end
end
