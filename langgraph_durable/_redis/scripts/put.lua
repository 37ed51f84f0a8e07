-- Add or replace a checkpoint.
-- ARGV 9 ns, 10 id, 11 parent, 12 sole, 13 lenient, 14 lead, 15 row, 16 root, 17 ... new items

if is_deleted(ARGV[16]) then return {'DELETED'} end
local answer = refused()
if answer then return answer end
local ns, id, parent = ARGV[9], ARGV[10], ARGV[11]
local place = id .. '\0' .. ns
local head = call('HGET', H, 'h' .. ns)
if ARGV[12] == '1' and (head or '') ~= parent and head ~= id then
  local lenient = ARGV[13] == '1' and head
  local is_stored = call('HEXISTS', H, 'c' .. parent .. '\0' .. ns) == 1
  if not lenient or is_stored then return state('MOVED', head) end
end
answer = taken(17)
if answer then return answer end

local added = call('HEXISTS', H, 'c' .. place) == 0
store_items(17)
set('c' .. place, ARGV[15])
if added then
  set('q', checkpoints + 1)
  call('ZADD', X, 0, place)
end
if not head or (added and (ARGV[14] == '1' or head == parent or less(head, id))) then
  set('h' .. ns, id)
end
return signed()
