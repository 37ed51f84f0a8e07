-- A checkpoint and its ancestors, newest first, each with its writes.
-- ARGV 1 ns, 2 id (none: the head), 3 how many at most
-- Answers {status, epoch, version, tokens, {id, row, writes, ...}}
if not epoch then return is_broken() and {'BROKEN'} or {'NONE'} end
local ns, id = ARGV[1], ARGV[2]
local head = call('HGET', H, 'h' .. ns)
if id == '' then id = head end
if not id then return {'NONE'} end
local links, seen = {}, {}
while id and not seen[id] and #links < 3 * tonumber(ARGV[3]) do
  seen[id] = true
  local place = id .. '\0' .. ns
  local row = call('HGET', H, 'c' .. place)
  if not row then break end
  links[#links + 1] = id
  links[#links + 1] = row
  links[#links + 1] = rows_of_writes(place)
  id = parent_of(row)
end
if #links == 0 then return id == head and {'HEADLESS', head} or {'NONE'} end
return state('OK', links)
