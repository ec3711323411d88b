-- Each request submits a job of its own name; what came of it is printed as JSON.
local threads, thread_number = {}, 0

function setup(thread)
  thread_number = thread_number + 1
  thread:set("number", thread_number)
  table.insert(threads, thread)
end

function init(args)
  submitted, refused = 0, 0
end

function request()
  submitted = submitted + 1
  local job = string.format('{"name": "load-%d-%d", "command": "true", "gpus": 1, "tags": {"project": "load"}}', number, submitted)
  return wrk.format("POST", nil, nil, job)
end

function response(status)
  if status ~= 201 then refused = refused + 1 end
end

function done(summary, latency)
  local refusals = 0
  for _, thread in ipairs(threads) do refusals = refusals + thread:get("refused") end
  local failed = refusals + summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout
  io.write(string.format('{"requests": %d, "seconds": %f, "p99_ms": %f, "failed": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(99) / 1e3, failed))
end
