-- Carry out commands that were made from a thread as it was at one version: all of them, or none.
-- ARGV 9 the new epoch, 10 commands, then of each: how many words, the command, 'H' or 'X', the rest
-- Without an epoch to rely on (ARGV 2) the thread must not exist.
local answer = refused()
if answer then return answer end
if version > 0 and (ARGV[2] == '' or tonumber(ARGV[3]) ~= version) then return state('STALE') end

epoch, tokens = ARGV[9], ''
local at = 11
for _ = 1, tonumber(ARGV[10]) do
  local words = tonumber(ARGV[at])
  local key = ARGV[at + 2] == 'H' and H or X
  call(ARGV[at + 1], key, unpack(ARGV, at + 3, at + words))
  at = at + words + 1
end
return signed()
