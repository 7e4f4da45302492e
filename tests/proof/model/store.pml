/* What the store does with what it is asked, at once or late: see oncecron.pml. */

/*
 * Something that a claim looks at has changed. A write that compares with what was looked at, and finds another version,
 * writes nothing, and its claimer looks again. So to forget a look at the moment of the change is the same as to compare
 * at the moment of the write, and no version has to be kept.
 */
inline forget(write) {
  i = 0;
  do
  :: i < HOSTS ->
     if :: host[i].decided == write -> host[i].decided = Undecided; SEEN(i, has_to_look_again) :: else fi;
     i++
  :: else -> break
  od;
  i = 0;
  if :: late == write -> late = None; late_owner = 0 :: else fi
}
inline changed() {
#ifndef EXPIRE_WITHOUT_COMPARE
  forget(Expire);
#endif
#ifndef GRANT_WITHOUT_COMPARE
#ifndef COMPARE_WITHOUT_FENCE
  forget(Grant);
#endif
#endif
}
#ifdef COMPARE_WITHOUT_HEARTBEAT
#define renewed lease_left = TTL
#else
#define renewed lease_left = TTL; changed()
#endif

/* The newest attempt of a tick that may have started; an attempt that did not is none, unless it is the only one. */
#ifdef RESUMES
inline find_newest(t) {
  do
  :: execution[newest[t]] == NotStarted && follows[newest[t]] != 0 -> newest[t] = follows[newest[t]]
  :: else -> break
  od;
  over[t] = over[t] || execution[newest[t]] == Ended
}
#else
inline find_newest(t) { skip }
#endif

/* finish, and deliver: the end of an execution, whose own lease goes. */
inline record(x, outcome) {
  promise(every_record_has_its_start, started[x] == (outcome == Ended || outcome == HalfWay));
  if :: lease_owner == x -> lease_owner = 0; lease_left = 0 :: else fi;
  if
  :: execution[x] == InProgress || execution[x] == Lost -> execution[x] = outcome; find_newest(tick[x]); changed()
  :: else
  fi
}
inline spool(outcome) {
  if
  :: execution[MY.owner] == InProgress || execution[MY.owner] == Lost || late_owner == MY.owner && late == Grant ->
     spooled[MY.owner] = outcome; SEEN(h, spools_its_record)
  :: else   /* says nothing to a store that does not know it */
  fi
}

/* look, and decide: core/decision.py. Who is known and has its lease still does not look, but renews it. */
#define known(x) (execution[x] != Unknown && !(looked))
#define has_it(x) (execution[x] == InProgress && lease_owner == x)
#define maybe_dead(x) (tick[lease_owner] != tick[x] && (lease_left < TTL - 1 || session_free))
#define over(t) (is_done(t) || is_passed(t))
#define in_the_way(x, goes_on) (session != 0 && session != x && !(goes_on))
#ifdef CATCH_UP /* claim the oldest instead, as another owner */
inline make_up(h) {
  if
  :: fired < FIRINGS ->
     close_session;
     if :: late_owner != MY.owner -> tick[MY.owner] = 0 :: else fi;
     fired++; tick[fired] = high_water + 1; MY.owner = fired; SEEN(h, makes_up_what_was_missed)
  :: else -> answer = Refused
  fi
}
#else
inline make_up(h) { skip }
#endif
inline look(h, x, goes_on, looked) {
  answer = Refused;
  if
  :: known(x) -> SEEN(h, is_refused_as_done)                                                                   /* 0 */
  :: !known(x) && paused -> SEEN(h, is_refused_as_paused)                                                      /* 1 */
  :: !known(x) && !paused && otherwise_divided(x) -> SEEN(h, is_refused_as_otherwise_divided)
  :: !known(x) && !stopped(x) && held && maybe_dead(x) -> answer = AskAgain; SEEN(h, is_told_orphaned)         /* 2 */
  :: !known(x) && !stopped(x) && held && !maybe_dead(x) -> SEEN(h, is_refused_as_held);
     promise(nobody_is_refused_because_of_himself, lease_owner != x && lease_owner != asked_before[x])
  :: !known(x) && !stopped(x) && !held && is_done(tick[x]) -> SEEN(h, is_refused_as_done)                      /* 4 */
  :: !known(x) && !stopped(x) && !held && is_passed(tick[x]) -> SEEN(h, is_refused_as_passed)
  :: !known(x) && !stopped(x) && !held && !over(tick[x]) && in_the_way(x, goes_on) -> answer = AskAgain;       /* 6 */
     if :: lease_owner != 0 -> SEEN(h, is_told_stale) :: else -> SEEN(h, is_told_contended) fi
  :: else ->
     answer = Decided;
     if
     :: lease_owner != 0 -> MY.decided = Expire; SEEN(h, finds_an_expired_lease)                               /* 7 */
     :: lease_owner == 0 && behind(x) -> make_up(h)
     :: else -> MY.decided = Grant; SEEN(h, finds_nothing_in_the_way)                                          /* 8 */
     fi
  fi
}

/* expire: only if nothing has changed since the look. It does not ask again whether the lease has expired. */
inline expire(h) {
  if
  :: lease_owner != 0 && execution[lease_owner] == InProgress ->
     execution[lease_owner] = Lost; fence++; SEEN(h, takes_an_expired_lease_away)
  :: else
  fi;
  lease_owner = 0; lease_left = 0;
  changed()
}

/* grant: only if nothing has changed since the look, and nothing that is not in the row is in the way. */
#ifdef COMPARE_WITHOUT_FENCE
#define same_lease (lease_owner == 0)
#else
#define same_lease true
#endif
#ifdef COMPARE_WITHOUT_PAUSE
#define same_pause true
#else
#define same_pause !paused
#endif
#ifdef COMPARE_WITHOUT_SHARDS
#define same_shards(x) true
#else
#define same_shards(x) !otherwise_divided(x)
#endif
inline grant(h, x, goes_on) {
  if
  :: same_lease && same_pause && same_shards(x) && !in_the_way(x, goes_on) ->
     if :: session != 0 && session != x -> SEEN(h, goes_on_past_a_dead_session) :: else fi;
     if
     :: resumable(tick[x]) ->
        if :: execution[newest[tick[x]]] == Lost -> SEEN(h, resumes_what_was_lost) :: else -> SEEN(h, resumes_what_was_stopped) fi;
        if :: tick[x] < high_water -> SEEN(h, resumes_an_older_tick) :: else fi
     :: !resumable(tick[x]) && newest[tick[x]] != 0 -> SEEN(h, takes_what_was_given_back)
     :: else
     fi;
     follow(x);
     promise(no_start_after_a_pause_has_returned, !paused);
     promise(a_tick_is_divided_once, !otherwise_divided(x));
     divide(x);
#ifndef TOKEN_STAYS
     fence++;
#endif
     token[x] = fence; execution[x] = InProgress; newest[tick[x]] = x;
     if :: tick[x] > high_water -> high_water = tick[x] :: else fi;
     lease_owner = x; lease_left = TTL; answer = Lease; SEEN(h, is_granted_the_lease);
     take_session(x);
     changed()
  :: else -> answer = Refused; SEEN(h, has_to_look_again)
  fi
}

#ifdef TRUST_FROM_RECEIPT
#define trust_after(delay) MY.early = true
#else
#define trust_after(delay) MY.trust = MOST_TRUST - delay
#endif
#define asks (guard_up(h) && MY.phase == Claiming && !MY.told_to_wait)
#define renews (guard_up(h) && (MY.phase == Leased && MY.trust == 0 || MY.phase == Running && beats(h)))
#define looks (asks && MY.decided == Undecided && !(has_it(MY.owner) && !look_is_over))
#ifdef KNOWN_OWNER_UNLOCKED
#define look_is_over MY.early
#else
#define look_is_over false
#endif
#define answers_grant(delay) d_step { asks && MY.decided == Grant -> \
    MY.decided = Undecided; grant(h, MY.owner, patience); \
    if :: answer == Lease -> MY.phase = Leased; trust_after(delay) :: else fi }
#define answers_its_holder(delay) d_step { asks && has_it(MY.owner) -> \
    MY.decided = Undecided; renewed; take_session(MY.owner); MY.phase = Leased; trust_after(delay); \
    SEEN(h, is_told_of_its_own_lease_again) }
#define answers_renewal(delay) d_step { renews && lease_owner == MY.owner -> \
    renewed; trust_after(delay); take_session(MY.owner); SEEN(h, has_its_lease_renewed) }
#ifdef PROMPT
inline ask_again() { MY.told_to_wait = true }
#else
inline ask_again() { skip }
#endif

proctype Store(byte h) {
  do
  :: d_step { looks ->
       look(h, MY.owner, patience, look_is_over);
       if :: answer == Refused -> leave() :: answer == AskAgain -> ask_again(); be_patient :: else fi }
  :: d_step { asks && MY.decided == Expire -> MY.decided = Undecided; expire(h) }
  :: d_step { looks && lease_left > TTL -> renewed; SEEN(h, cuts_a_lease) }
  :: answers_grant(0)
  :: answers_its_holder(0)
  :: answers_renewal(0)
#ifndef PROMPT
  :: answers_grant(1)
  :: answers_grant(2)
  :: answers_its_holder(1)
  :: answers_its_holder(2)
  :: answers_renewal(1)   /* one that is slower brings no trust: as good as lost */
#endif
#ifdef KNOWN_OWNER_UNLOCKED
  :: d_step { asks && execution[MY.owner] == Unknown -> MY.early = true }
#endif
  :: d_step { asks && MY.decided == Grant && may_fail ->
       MY.decided = Undecided; grant(h, MY.owner, patience); lose_session; fault(has_its_answer_lost);
#ifdef NEW_OWNER_ON_RETRY
       if
       :: fired < FIRINGS -> fired++; tick[fired] = tick[MY.owner]; asked_before[fired] = MY.owner; MY.owner = fired
       :: else
       fi
#endif
     }
  :: d_step { (renews && lease_owner == MY.owner || asks && has_it(MY.owner)) && may_fail ->
       renewed; lose_session; fault(has_its_answer_lost) }
  :: d_step { renews && lease_owner != MY.owner -> SEEN(h, learns_that_its_lease_is_lost);
       if
       :: MY.tree == Nothing -> leave()
       :: else -> MY.tree = Killed; MY.trust = 0
       fi }
  :: d_step { guard_up(h) && MY.phase == Ending -> record(MY.owner, MY.ending); SEEN(h, records_the_end); leave() }
  :: d_step { guard_up(h) && MY.phase == Ending && may_fail ->
       record(MY.owner, MY.ending); lose_session; fault(has_its_answer_lost) }
  od
}

#define heard late = None; late_owner = 0; late_ending = Unknown; MARK(has_a_request_heard_late)
#define delivers(x) d_step { spooled[x] != Unknown -> \
    record(x, spooled[x]); spooled[x] = Unknown; MARK(has_its_record_delivered) }
proctype Late() {
  do
  :: d_step { late == Grant -> grant(HOSTS, late_owner, false);
       if :: answer == Lease -> MARK(has_a_lease_granted_to_nobody) :: else fi; heard }
  :: d_step { late == Expire -> expire(HOSTS); heard }
  :: d_step { late == Renew -> if :: lease_owner == late_owner -> renewed :: else fi; heard }
  :: d_step { late == Finish -> record(late_owner, late_ending); heard }
  :: delivers(1)
  :: delivers(2)
#if FIRINGS > 2
  :: delivers(3)
#endif
#if FIRINGS > 3
  :: delivers(4)
#endif
  :: d_step { session == NOBODY -> session = 0 }
  od
}
