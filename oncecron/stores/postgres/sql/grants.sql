-- The rights that `oncecron init` gives to {role}, by the name of its option.

-- name: run
grant usage on schema {ns} to {role};
grant select on {ns}.meta to {role};
grant execute on function
  {ns}.look_v1, {ns}.look_at_log_v1, {ns}.look_at_tick_v1, {ns}.look_back_v1, {ns}.register_v1, {ns}.grant_v1, {ns}.expire_v1, {ns}.cut_v1,
  {ns}.fence_holder_v1, {ns}.listen_v1, {ns}.renew_v1, {ns}.adopt_v1, {ns}.keep_v1, {ns}.retry_v1, {ns}.skip_v1,
  {ns}.see_first_v1, {ns}.see_again_v1, {ns}.deliver_v1, {ns}.finish_v1,
  {ns}.warm_look_v1, {ns}.warm_look_at_log_v1, {ns}.warm_look_at_tick_v1, {ns}.warm_grant_v1, {ns}.warm_skip_v1,
  {ns}.warm_see_first_v1, {ns}.warm_see_again_v1, {ns}.warm_finish_v1 to {role};

-- name: read
grant usage on schema {ns} to {role};
grant select on
  {ns}.meta, {ns}.keys, {ns}.executions, {ns}.skips, {ns}.plain_rows, {ns}.leases, {ns}.pauses, {ns}.key_hosts, {ns}.outputs to {role};

-- name: job
grant usage on schema {ns} to {role};
grant execute on function {ns}.assert_fence to {role};

-- name: operate
-- The views are those that an operator reads: what to stop, release or drain, and how it ended.
grant usage on schema {ns} to {role};
grant select on
  {ns}.meta, {ns}.keys, {ns}.executions, {ns}.skips, {ns}.plain_rows, {ns}.leases, {ns}.pauses, {ns}.key_hosts to {role};
grant execute on function
  {ns}.pause_v1, {ns}.resume_v1, {ns}.drain_v1, {ns}.undrain_v1, {ns}.request_v1, {ns}.release_v1, {ns}.unblock_v1,
  {ns}.forget_v1, {ns}.forget_host_v1 to {role};
