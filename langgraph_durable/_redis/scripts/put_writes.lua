-- Add pending writes of one task.
-- ARGV 9 ns, 10 id, 11 sole, 12 task's digest, 13 its name as msgpack, 14 root, 15 rows, then
-- (idx, count, row) of each, new items
if is_deleted(ARGV[14]) then return {'DELETED'} end
local answer = refused()
if answer then return answer end
local ns, id, task, name, rows = ARGV[9], ARGV[10], ARGV[12], ARGV[13], tonumber(ARGV[15])
local first, last = 16, 15 + 3 * rows
local place = id .. '\0' .. ns
if ARGV[11] == '1' then
  local head = call('HGET', H, 'h' .. ns)
  if head ~= id then return state('MOVED', head) end
end

-- The page that lists the task, or else the first with room. A page that was full may have room
-- again: a task's rows leave it when they are many, and special writes are replaced by smaller ones.
local page, tasks, mine, room, own = 0, {}, nil, nil, ''
local function find()
  while true do
    local listed = call('HGET', H, 'w' .. page .. ':' .. place)
    if not listed then break end
    local has_room = not room and #listed < PAGE
    if has_room or string.find(listed, name, 1, true) or string.find(listed, task, 1, true) then
      local there = tasks_on(listed)
      for _, each in ipairs(there) do
        if each[1] and is_of(each[1], name) or each[2] == task then mine = each end
      end
      if mine or has_room then tasks = there end
      if mine then
        own = mine[1] or call('HGET', H, 't' .. task) or ''
        return rows_in(own)
      end
      if has_room then room = page end
    end
    page = page + 1
  end
  page = room or page
  return {}
end
local is_good, held = pcall(find)
if not is_good then return {'TORN', id} end
local at_idx = {}
for k, row in ipairs(held) do
  at_idx[row[1]] = k
  for r = first, last, 3 do
    local idx = tonumber(ARGV[r])
    local apart = idx + tonumber(ARGV[r + 1]) <= row[1] or row[1] + row[2] <= idx
    if idx >= 0 and row[1] >= 0 and not apart then return state('HELD', own) end
  end
end
answer = taken(last + 1)
if answer then return answer end

store_items(last + 1)
for r = first, last, 3 do
  local idx = tonumber(ARGV[r])
  held[at_idx[idx] or #held + 1] = {idx, tonumber(ARGV[r + 1]), ARGV[r + 2]}
end
for k, row in ipairs(held) do
  held[k] = struct.pack('>i4I4I4', row[1], row[2], #row[3]) .. row[3]
end
local packed = table.concat(held)
local is_inside = page == 0 and (not mine or mine[1]) and #packed <= INSIDE
if not is_inside then set('t' .. task, packed) end
if not mine then
  mine = {}
  tasks[#tasks + 1] = mine
end
mine[1], mine[2] = is_inside and packed, task
for k, each in ipairs(tasks) do
  tasks[k] = struct.pack('>I4', each[1] and #each[1] or APART) .. (each[1] or each[2])
end
set('w' .. page .. ':' .. place, struct.pack('>I2', #tasks) .. table.concat(tasks))
return signed()
