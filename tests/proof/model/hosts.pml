/* What happens on a host, and what befalls it: see oncecron.pml. */

inline never_two_at_a_time() {
  i = 0;
  do
  :: i < HOSTS ->
     if
     :: i != h && MY.tree != Nothing && host[i].tree != Nothing ->
        SEEN(h, runs_beside_another); promise(never_two_at_a_time, MY.blind || host[i].blind)
     :: else
     fi;
     i++
  :: else -> break
  od;
  i = 0
}

inline start() {
  SEEN(h, starts_its_job);
  MY.tree = Runs; MY.phase = Running;
  never_two_at_a_time();
#ifdef RESUMES
  promise(no_start_after_the_end, !over[tick[MY.owner]]);
#else
  promise(one_start_a_tick, !ran[tick[MY.owner]]);
#endif
  promise(every_start_has_its_record, execution[MY.owner] != Unknown);
  promise(tokens_rise, token[MY.owner] > last_token || MY.blind);
#ifdef CATCH_UP /* it was claimed: run, lost or given back */
  promise(no_missed_tick_is_left, last_tick == 0 || newest[tick[MY.owner] - 1] != 0);
#endif
  promise(ticks_rise, tick[MY.owner] > last_tick || MY.blind || resumed(MY.owner));
  ran[tick[MY.owner]] = true; started[MY.owner] = true;
  if :: token[MY.owner] > last_token -> last_token = token[MY.owner] :: else fi;
  if :: tick[MY.owner] > last_tick -> last_tick = tick[MY.owner] :: else fi;
  i = 1;
  do
  :: i <= FIRINGS -> if :: execution[i] == Lost -> SEEN(h, starts_after_somebody_was_lost) :: else fi; i++
  :: else -> break
  od;
  i = 0
}

#ifdef RELEASE_BEFORE_DEAD
#define over_for_the_guard (MY.tree != Runs)
#else
#define over_for_the_guard (MY.tree == Nothing)
#endif
#define fires_now (MY.owner == 0 && fired < FIRINGS && (h == 0 || fired > 0)) /* hosts are alike: let 0 be the first */
inline fire(t) { fired++; MY.owner = fired; tick[fired] = t; MY.phase = Claiming; SEEN(h, fires) }

proctype Guard(byte h) {
  do
  :: d_step { fires_now -> fire(1) }
  :: d_step { fires_now -> fire(2) }
#if TICKS > 2
  :: d_step { fires_now -> fire(3) }
#endif
#ifdef SHARDS
  :: d_step { fires_now -> fire(1); shards[fired] = 2 }
#endif
#ifndef PROMPT /* told to stop, or the budget has ended; the command cannot be executed */
  :: d_step { guard_up(h) && MY.phase == Claiming -> SEEN(h, gives_up_asking); spool(NotStarted); gone() }
  :: d_step { guard_up(h) && (MY.phase == Leased || MY.phase == Published || MY.phase == Ready) ->
       MY.phase = Ending; MY.ending = NotStarted; MY.trust = 0; SEEN(h, gives_its_tick_back) }
#endif
#ifdef RUN_WITHOUT_STORE
  :: d_step { guard_up(h) && MY.phase == Claiming -> MY.phase = Ready; MY.trust = MOST_TRUST }
#endif
#ifdef TRUST_FROM_RECEIPT
  :: d_step { guard_up(h) && MY.early -> MY.early = false; MY.trust = MOST_TRUST }
#endif
#ifdef LOOK_BEFORE_PUBLISH
  :: d_step { guard_up(h) && MY.phase == Leased && MY.trust > 0 -> MY.phase = Looked }
  :: d_step { guard_up(h) && MY.phase == Looked -> MY.phase = Ready }
#else
  :: d_step { guard_up(h) && MY.phase == Leased && MY.trust > 0 -> MY.phase = Published }
  :: d_step { guard_up(h) && MY.phase == Published && MY.trust > 0 -> MY.phase = Ready }
  :: d_step { guard_up(h) && MY.phase == Published && MY.trust == 0 ->
       MY.phase = Leased; SEEN(h, has_too_little_trust_to_start) }
#endif
  :: d_step { guard_up(h) && MY.phase == Ready -> start() }
  :: d_step { guard_up(h) && MY.tree == Runs && due(h) -> MY.tree = Killed; SEEN(h, guard_kills_before_trust_ends);
#ifdef PROMPT
       promise(nothing_is_killed_without_a_fault, faults > 0)
#endif
     }
  :: d_step { guard_up(h) && MY.tree == Runs && MY.wrapper == Dead ->
       MY.tree = Killed; SEEN(h, guard_kills_for_the_wrapper) }
  :: d_step { guard_up(h) && MY.phase == Running && over_for_the_guard ->
       MY.phase = Ending; MY.ending = Ended; MY.trust = 0 }
#ifdef RESUMES
  :: d_step { guard_up(h) && MY.phase == Running && over_for_the_guard ->
       MY.phase = Ending; MY.ending = HalfWay; MY.trust = 0 }
#endif
  :: d_step { guard_up(h) && MY.phase == Ending && may_fail -> faults++; wait_anew(); spool(MY.ending); gone() }
  od
}

proctype Tree(byte h) {
  do
  :: d_step { MY.tree == Runs && !MY.frozen -> MY.tree = Nothing; SEEN(h, has_its_job_ended) }
  :: d_step { MY.tree == Killed && !MY.frozen -> MY.tree = Nothing }
#ifdef FREEZE
#ifdef NO_FENCING
#define accepted true
#else
#define accepted (fence == token[MY.owner]) /* assert_fence */
#endif
  :: d_step { MY.tree != Nothing && !MY.frozen && accepted ->
       SEEN(h, writes_with_its_token); promise(no_write_after_a_newer_start, token[MY.owner] == last_token) }
  :: d_step { MY.tree != Nothing && !MY.frozen && !accepted -> SEEN(h, is_refused_a_stale_write) }
#endif
  od
}

#ifdef LOST_CALLED_NOT_STARTED
#define AFTER_FENCING NotStarted
#else
#define AFTER_FENCING HALF_WAY
#endif
proctype Wrapper(byte h) {
  do
  :: d_step { wrapper_up(h) && MY.guard == Dead && MY.tree == Runs ->
       MY.tree = Killed; SEEN(h, wrapper_kills_for_the_guard) }
  :: d_step { fence_due(h) ->
       if :: MY.guard == Stopped -> SEEN(h, wrapper_fences_a_stopped_guard) :: else fi;
       MY.guard = Dead; lose_session;
       if :: MY.tree == Runs -> MY.tree = Killed :: else fi }
  :: d_step { wrapper_up(h) && MY.guard == Dead && MY.tree == Nothing ->
       if :: started[MY.owner] -> spool(AFTER_FENCING) :: else fi; gone() }
  :: d_step { MY.guard == Dead && MY.wrapper == Dead && MY.tree == Nothing -> gone() }
  od
}

#define struck (may_fail && MY.phase != Idle && MY.phase != Claiming && MY.phase != Ending)
#define hold_up(what) late = what; late_owner = MY.owner; late_ending = MY.ending; fault(has_a_request_held_up)
proctype Nemesis(byte h) {
  do
#ifndef FREEZE
  :: d_step { struck && MY.guard != Dead && MY.wrapper == Up -> MY.guard = Dead; lose_session; fault(guard_is_killed) }
  :: d_step { struck && MY.guard == Up && MY.wrapper != Dead -> MY.wrapper = Dead; fault(wrapper_is_killed) }
  :: d_step { struck && MY.guard == Up && MY.wrapper == Up -> MY.guard = Stopped; fault(guard_is_stopped) }
  :: d_step { struck && MY.guard == Up && MY.wrapper == Up -> MY.wrapper = Stopped; fault(wrapper_is_stopped) }
  :: d_step { MY.guard == Stopped -> MY.guard = Up; SEEN(h, goes_on) }
  :: d_step { MY.wrapper == Stopped -> MY.wrapper = Up; SEEN(h, goes_on) }
#else
  :: d_step { may_fail && MY.owner != 0 && !MY.frozen ->
       MY.frozen = true; MY.blind = true; lose_session; fault(freezes) }
  :: d_step { MY.frozen -> MY.frozen = false; SEEN(h, thaws) }
  :: d_step { struck && MY.guard != Dead -> MY.guard = Dead; MY.wrapper = Dead; MY.blind = true; lose_session;
       fault(loses_guard_and_wrapper) }
#endif
  :: d_step { may_fail && MY.owner != 0 -> gone(); fault(vanishes) }
  :: d_step { may_fail && late == None && asks && MY.decided == Grant -> MY.decided = Undecided; hold_up(Grant) }
  :: d_step { may_fail && late == None && asks && MY.decided == Expire -> MY.decided = Undecided; hold_up(Expire) }
  :: d_step { may_fail && late == None && (renews || asks && has_it(MY.owner)) -> hold_up(Renew) }
  :: d_step { may_fail && late == None && guard_up(h) && MY.phase == Ending -> hold_up(Finish) }
  od
}
