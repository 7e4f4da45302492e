/* What the store does with what it is asked, at once or late: see oncecron.pml. */

/* finish, and deliver: the end of an execution, whose own lease goes. */
inline record(x, outcome) {
  promise(every_record_has_its_start, started[x] == (outcome == Ended));
  if :: lease_owner == x -> lease_owner = 0; lease_left = 0 :: else fi;
  if :: execution[x] == InProgress || execution[x] == Lost -> execution[x] = outcome :: else fi
}
inline spool(outcome) {
  if
  :: execution[MY.owner] == InProgress || execution[MY.owner] == Lost || late_owner == MY.owner && late == Claim ->
     spooled[MY.owner] = outcome; SEEN(h, spools_its_record)
  :: else   /* says nothing to a store that does not know it */
  fi
}

/* claim: the steps of store.py. */
#define known(x) (execution[x] != Unknown && !(looked))
#define has_it(x) (execution[x] == InProgress && lease_owner == x)
#define maybe_dead(x) (tick[lease_owner] != tick[x] && (lease_left < TTL - 1 || session_free))
#define over(t) (is_done(t) || is_passed(t))
inline claim(h, x, goes_on, looked) {
  answer = Refused;
  if
  :: known(x) && has_it(x) -> lease_left = TTL; answer = Lease; SEEN(h, is_told_of_its_own_lease_again)       /* 0 */
  :: known(x) && !has_it(x) -> SEEN(h, is_refused_as_done)
  :: !known(x) && held && maybe_dead(x) -> answer = AskAgain; SEEN(h, is_told_orphaned)                        /* 2 */
  :: !known(x) && held && !maybe_dead(x) -> SEEN(h, is_refused_as_held);
     promise(nobody_is_refused_because_of_himself, lease_owner != x && lease_owner != asked_before[x])
  :: !known(x) && !held && is_done(tick[x]) -> SEEN(h, is_refused_as_done)
  :: !known(x) && !held && is_passed(tick[x]) -> SEEN(h, is_refused_as_passed)
  :: !known(x) && !held && !over(tick[x]) && session != 0 && session != x && !(goes_on) -> answer = AskAgain; /* 3 */
     if :: lease_owner != 0 -> SEEN(h, is_told_stale) :: else -> SEEN(h, is_told_contended) fi
  :: else ->
     if :: session != 0 && session != x -> SEEN(h, goes_on_past_a_dead_session) :: else fi;
     if
     :: lease_owner != 0 && execution[lease_owner] == InProgress ->                                            /* 5 */
        execution[lease_owner] = Lost; fence++; SEEN(h, takes_an_expired_lease_away)
     :: else
     fi;
     lease_owner = 0;
     if
     :: is_done(tick[x]) -> SEEN(h, is_refused_as_done)
     :: !is_done(tick[x]) && is_passed(tick[x]) -> SEEN(h, is_refused_as_passed)
     :: else ->                                                                                                /* 7 */
        if :: newest[tick[x]] != 0 -> SEEN(h, takes_what_was_given_back) :: else fi;
#ifndef TOKEN_STAYS
        fence++;
#endif
        token[x] = fence; execution[x] = InProgress; newest[tick[x]] = x;
        if :: tick[x] > high_water -> high_water = tick[x] :: else fi;
        lease_owner = x; lease_left = TTL; answer = Lease; SEEN(h, is_granted_the_lease)
     fi
  fi;
  if :: answer == Lease -> take_session(x) :: else fi
}

#ifdef TRUST_FROM_RECEIPT
#define trust_after(delay) MY.early = true
#else
#define trust_after(delay) MY.trust = MOST_TRUST - delay
#endif
#define asks (guard_up(h) && MY.phase == Claiming && !MY.told_to_wait)
#define renews (guard_up(h) && (MY.phase == Leased && MY.trust == 0 || MY.phase == Running && beats(h)))
#ifdef KNOWN_OWNER_UNLOCKED
#define look_is_over MY.early
#else
#define look_is_over false
#endif
#define answers_claim(delay) d_step { asks -> \
    claim(h, MY.owner, patience, look_is_over); \
    if \
    :: answer == Lease -> MY.phase = Leased; trust_after(delay) \
    :: answer == AskAgain -> ask_again(); be_patient \
    :: else -> leave() \
    fi }
#define answers_renewal(delay) d_step { renews && lease_owner == MY.owner -> \
    lease_left = TTL; trust_after(delay); take_session(MY.owner); SEEN(h, has_its_lease_renewed) }
#ifdef PROMPT
inline ask_again() { MY.told_to_wait = true }
#else
inline ask_again() { skip }
#endif

proctype Store(byte h) {
  do
  :: answers_claim(0)
  :: answers_renewal(0)
#ifndef PROMPT
  :: answers_claim(1)
  :: answers_claim(2)
  :: answers_renewal(1)   /* one that is slower brings no trust: as good as lost */
#endif
#ifdef KNOWN_OWNER_UNLOCKED
  :: d_step { asks && execution[MY.owner] == Unknown -> MY.early = true }
#endif
  :: d_step { asks && may_fail -> claim(h, MY.owner, patience, false); lose_session; fault(has_its_answer_lost);
#ifdef NEW_OWNER_ON_RETRY
       if
       :: fired < FIRINGS -> fired++; tick[fired] = tick[MY.owner]; asked_before[fired] = MY.owner; MY.owner = fired
       :: else
       fi
#endif
     }
  :: d_step { renews && lease_owner == MY.owner && may_fail ->
       lease_left = TTL; lose_session; fault(has_its_answer_lost) }
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
  :: d_step { late == Claim -> claim(HOSTS, late_owner, false, false);
       if :: answer == Lease -> MARK(has_a_lease_granted_to_nobody) :: else fi; heard }
  :: d_step { late == Renew -> if :: lease_owner == late_owner -> lease_left = TTL :: else fi; heard }
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
