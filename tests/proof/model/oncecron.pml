/*
 * The protocol of a lease - claim, renewal, kill, end, takeover - for one key, as a model for spin (spinroot.com).
 *
 * HOSTS hosts fire FIRINGS times, each for any of TICKS ticks in any order, and up to FAULTS faults befall them at any
 * moment. spin walks through every order in which all of this can happen. `promise` states what must hold; a broken
 * one ends the search with a trail, whose story `pan -r -S` tells line by line.
 *
 * WHAT STANDS FOR WHAT
 *   Store     look and decide: core/decision.py, its steps 0 to 2, 4 and 6 to 8. What was decided is written by expire or
 *             grant (stores/claim_loop.py), only if nothing has changed since the look; else the claimer looks again.
 *             Between the two anything may happen for any time. renew and finish. Each is one atomic step. SESSION adds
 *             PostgreSQL's session lock, PAUSES a pause, SHARDS the other shards of the key.
 *   Guard     run/guard.py, run/job.py, heartbeat.py. Claiming: _Claim. Leased, Published, Ready: _granted and _start, down to
 *             child.start. Running: Job.judge. Ending: _record. trust: Lease.trusted_until; published: it stands in
 *             the page of trust.py.
 *   Tree      the job and all that it started (child.Tree). Nothing: waitpid has said that none is left.
 *   Wrapper   wrapper.py: _fence, for a guard that is gone and for one that does not kill in time.
 *   Nemesis   what befalls a host: its guard or its wrapper is killed, stopped, continued; the host is gone at once with
 *             all that ran. With FREEZE the documented hole instead: all of a host stands still for any time and goes
 *             on, or guard and wrapper are killed together and the tree runs on.
 *   Late      a request whose asker has gone or has asked again, heard at any time later; the spool's records
 *             (deliver); the server noticing that a session's client has gone.
 *   Time      the store's clock and all lease clocks, in units of a third of the ttl. The store's may be set back.
 *   Others    who pauses and resumes the key, and a host that is granted another shard of tick 1.
 *   RESUMES   all firings are slots of `each` (Firing.resumes): they follow an attempt that was lost, or stopped before
 *             its items were done, however old the tick. What is drawn from the store under such a lease: items.
 *   CATCH_UP  all firings make up what was missed: run/claimer.py. The one that goes on after that is a firing of its own.
 *
 * WHAT IS LEFT OUT, AND WHY IT HIDES NOTHING
 *   Absolute time: only how long each lease and each trust still lasts is kept, so that a run may last for ever. So no
 *   mark is in the future of the store's clock; what a claim makes of one is decide() alone (tests/unit/test_decide.py).
 *   Clocks of unequal speed: they are what the margin of 1 % pays for. Here all go alike, and there is no margin.
 *   Time within a unit: a unit passes only when nobody who can act has to kill. That a kill and a death together take
 *   less than the last third of the ttl is an assumption (the product kills at a twelfth and at a twentieth), and so is
 *   that a guard which is not stopped gets from its last look at the clock to its job within a unit. TERM and grace are
 *   a job that goes on running. All else takes as long as it likes.
 *   Answers under way: trust counts from the sending, so it does not matter when an answer comes. Here it is there at
 *   once, with as much less trust as the request was slow (0, 1 or 2 units), or it is lost. A request may take for ever:
 *   that is a cut connection. One at a time is held up, to be heard when nobody listens any more.
 *   Stops where nobody has to act in time: to be stopped is then no more than to be slow. Only who has a lease is struck.
 *   Answers to a look and to expire that are lost: the claimer looks again, as it does in any case.
 *   Constraints of the store (one lease a key, each attempt once): the comparison has to be enough without them.
 *   A store that forgets (put back, a failover that loses the last write: its version must not come again), drain,
 *   min_gap, --wait, --again, names, retention, the minute rule: not here.
 *
 * PROMPT leaves out slowness instead, and asks that nobody waits longer than LONGEST_WAIT units for an answer.
 *
 * Every other macro that is asked for makes a wrong variant, which must break a promise: see test_model.py.
 */
#ifndef HOSTS
#define HOSTS 2
#endif
#ifndef TICKS
#define TICKS 2
#endif
#ifndef FIRINGS
#define FIRINGS 3
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#define TTL 3                /* units until a lease ends */
#define MOST_TRUST (TTL - 1) /* units until the last one, in which the job is killed, begins */
#define NOBODY (FIRINGS + 1) /* a session whose client has gone */

/* What happens, counted, so that a promise is known to be kept where it is at stake. */
#define EVENTS(X) X(a_third_of_the_ttl_passes) X(fires) X(finds_nothing_in_the_way) X(finds_an_expired_lease) \
  X(has_to_look_again) X(is_granted_the_lease) X(is_refused_as_held) X(is_refused_as_done) X(is_refused_as_passed) \
  X(is_refused_as_paused) X(is_refused_as_otherwise_divided) X(is_told_orphaned) X(is_told_stale) X(is_told_contended) \
  X(takes_an_expired_lease_away) X(cuts_a_lease) X(goes_on_past_a_dead_session) X(is_told_of_its_own_lease_again) \
  X(has_its_answer_lost) X(has_a_request_held_up) X(has_a_request_heard_late) X(has_a_lease_granted_to_nobody) \
  X(has_its_lease_renewed) X(has_too_little_trust_to_start) X(gives_its_tick_back) X(gives_up_asking) \
  X(starts_its_job) X(starts_after_somebody_was_lost) X(takes_what_was_given_back) X(has_its_job_ended) \
  X(guard_kills_before_trust_ends) X(guard_kills_for_the_wrapper) X(wrapper_fences_a_stopped_guard) \
  X(wrapper_kills_for_the_guard) X(learns_that_its_lease_is_lost) X(records_the_end) X(spools_its_record) \
  X(has_its_record_delivered) X(guard_is_killed) X(wrapper_is_killed) X(guard_is_stopped) X(wrapper_is_stopped) \
  X(goes_on) X(vanishes) X(freezes) X(thaws) X(loses_guard_and_wrapper) X(writes_with_its_token) \
  X(is_refused_a_stale_write) X(runs_beside_another) X(clock_is_set_back) X(key_is_paused) X(key_is_resumed) \
  X(another_shard_is_granted) X(makes_up_what_was_missed) X(resumes_what_was_lost) X(resumes_what_was_stopped) X(resumes_an_older_tick)
#define NAME(event) event,
#define QUOTED(event) #event,
c_decl {
\#include <stdio.h>
\#include <stdlib.h>
enum { EVENTS(NAME) events };
static const char *const names[] = { EVENTS(QUOTED) };
static unsigned long seen[events];
static void tell(void) { for (int i = 0; i < events; i++) printf("seen %s %lu\n", names[i], seen[i]); }
__attribute__((constructor)) static void at_the_end(void) { atexit(tell); }
}
#define TEXT(text) #text
#define SEEN(h, event) printf(TEXT(host %d event\n), h); c_code { seen[event]++; }
#define MARK(event) printf(TEXT(event\n)); c_code { seen[event]++; }
#ifdef ONLY /* one promise alone: most wrong variants would break several */
#define at_stake(name) IS(ONLY, name)
#define IS(one, other) IS_(one, other)
#define IS_(one, other) (NUMBER_##one == NUMBER_##other)
#else
#define at_stake(name) true
#endif
#define NUMBER_one_start_a_tick 1
#define NUMBER_never_two_at_a_time 2
#define NUMBER_every_start_has_its_record 3
#define NUMBER_every_record_has_its_start 4
#define NUMBER_tokens_rise 5
#define NUMBER_ticks_rise 6
#define NUMBER_no_write_after_a_newer_start 7
#define NUMBER_nobody_is_refused_because_of_himself 8
#define NUMBER_no_key_is_blocked 9
#define NUMBER_nothing_is_killed_without_a_fault 10
#define NUMBER_no_start_after_a_pause_has_returned 11
#define NUMBER_a_tick_is_divided_once 12
#define NUMBER_no_start_after_the_end 13
#define NUMBER_no_missed_tick_is_left 14
#define promise(name, condition) \
  if :: (!at_stake(name) || (condition)) :: else -> c_code { printf(TEXT(broken: name\n)); }; assert(false) fi

mtype:process = { Up, Stopped, Dead };
mtype:tree = { Nothing, Runs, Killed };
mtype:phase = { Idle, Claiming, Leased, Looked, Published, Ready, Running, Ending };
mtype:call = { None, Undecided, Expire, Grant, Renew, Finish };
mtype:outcome = { Unknown, InProgress, Ended, HalfWay, Lost, NotStarted }; /* HalfWay: `stopped`, items are left */
mtype:answer = { Lease, Refused, AskAgain, Decided };

typedef Host {
  byte owner;                   /* of its present firing; 0: it has none */
  mtype:phase phase;
  mtype:process guard, wrapper;
  mtype:tree tree;
  byte trust;
  mtype:outcome ending;
  mtype:call decided;           /* what it is to write after its look, if nothing changes */
  bool told_to_wait;            /* has asked in this unit (PROMPT) */
  bool patient;                 /* has been told `stale` or `contended` before: goes on without the session lock */
  bool early;                   /* in two wrong variants: an answer is on its way; the look for a known owner is over */
  bool frozen, blind;           /* blind: it was frozen in this unit, or nobody watches its tree */
  byte waited;                  /* units of claiming since the last fault (PROMPT) */
}
Host host[HOSTS];
#define MY host[h]

/* The store. Owners are numbers from 1; an execution is known by its owner. */
byte lease_owner, lease_left, fence, high_water, session;
byte tick[FIRINGS + 1], token[FIRINGS + 1], newest[TICKS + 1];
mtype:outcome execution[FIRINGS + 1];

/* On its way. */
mtype:call late = None;
mtype:outcome late_ending = Unknown, spooled[FIRINGS + 1];
byte late_owner;

/* For the promises. */
byte fired, faults, last_token, last_tick, asked_before[FIRINGS + 1];
bool ran[TICKS + 1], started[FIRINGS + 1];
hidden byte answer, i;

/* What a claim looks at besides the row of its key and shard: a pause, and the row of shard 0. */
#ifdef PAUSES
bool paused;
#else
#define paused false
#endif
#ifdef SHARDS
byte shards[FIRINGS + 1], divided[TICKS + 1]; /* 0: no shard of the tick was granted yet */
#define otherwise_divided(x) (divided[tick[x]] != 0 && divided[tick[x]] != shards[x])
#define divide(x) divided[tick[x]] = shards[x]
#else
#define otherwise_divided(x) false
#define divide(x) skip
#endif
#define stopped(x) (paused || otherwise_divided(x))

/* What follows an attempt that did not come to its end. */
#ifdef RESUMES
byte follows[FIRINGS + 1]; /* the attempt that an execution resumes; 0: none */
bool over[TICKS + 1];      /* the newest attempt of the tick is on record as ended */
#define cut_off(t) (execution[newest[t]] == Lost || execution[newest[t]] == HalfWay)
#ifdef ENDED_RESUMED
#define resumable(t) (cut_off(t) || execution[newest[t]] == Ended)
#else
#define resumable(t) cut_off(t)
#endif
#define resumed(x) (follows[x] != 0)
#define follow(x) follows[x] = (resumable(tick[x]) -> newest[tick[x]] : 0)
#define HALF_WAY HalfWay
#else
#define resumable(t) false
#define resumed(x) false
#define follow(x) skip
#define HALF_WAY Ended
#endif

/* What all hosts have missed, since the newest tick that was claimed. */
#ifndef CATCH_UP
#define OWN_TICK_FIRST
#endif
#ifdef OWN_TICK_FIRST
#define behind(x) false
#else
#define behind(x) (high_water != 0 && tick[x] > high_water + 1)
#endif

#define guard_up(h) (host[h].guard == Up && !host[h].frozen)
#define wrapper_up(h) (host[h].wrapper == Up && !host[h].frozen)
#define may_fail (faults < FAULTS)
#define fault(event) faults++; wait_anew(); SEEN(h, event)
#define published(h) (host[h].phase == Published || host[h].phase == Ready || host[h].phase == Running)
#ifdef NO_TRUST
#define due(h) false
#else
#define due(h) (published(h) && host[h].trust == 0)
#endif
#ifdef LATE_HEARTBEATS
#define beats(h) (host[h].trust == 0)
#else
#define beats(h) (host[h].trust < MOST_TRUST)
#endif
#ifdef NO_WATCHDOG
#define fence_due(h) false
#else
#define fence_due(h) (due(h) && wrapper_up(h) && host[h].guard != Dead)
#endif
#ifdef NO_LEASE_ROW
#define held (session != 0)
#else
#define held (lease_owner != 0 && lease_left > 0)
#endif
#ifdef LOST_REOPENS
#define reopens(t) (execution[newest[t]] == NotStarted || execution[newest[t]] == Lost)
#else
#define reopens(t) (execution[newest[t]] == NotStarted)
#endif
#ifdef NO_TICK
#define NO_HIGH_WATER
#define is_done(t) false
#else
#define is_done(t) (newest[t] != 0 && execution[newest[t]] != InProgress && !reopens(t) && !resumable(t))
#endif
#ifdef NO_HIGH_WATER
#define is_passed(t) false
#else
#define is_passed(t) (newest[t] == 0 && t <= high_water || newest[t] != 0 && reopens(t) && t < high_water)
#endif

#ifdef SESSION
#define session_free (session == 0)
#define take_session(x) if :: session == 0 -> session = x :: else fi
#define close_session if :: session == MY.owner -> session = 0 :: else fi
#define lose_session if :: session != 0 && session == MY.owner -> session = NOBODY :: else fi
#define be_patient MY.patient = true
#else
#define session_free false
#define take_session(x) skip
#define close_session skip
#define lose_session skip
#define be_patient skip
#endif
#ifdef WAITS_FOR_THE_SESSION
#define patience false
#else
#define patience MY.patient
#endif

inline wait_anew() { i = 0; do :: i < HOSTS -> host[i].waited = 0; i++ :: else -> break od; i = 0 }

inline gone() {
  lose_session;
  token[MY.owner] = 0;
  if :: execution[MY.owner] == Unknown && late_owner != MY.owner -> tick[MY.owner] = 0 :: else fi;
  MY.owner = 0; MY.phase = Idle; MY.guard = Up; MY.wrapper = Up; MY.tree = Nothing; MY.trust = 0; MY.ending = Unknown;
  MY.decided = Undecided;
  MY.told_to_wait = false; MY.patient = false; MY.early = false; MY.frozen = false; MY.blind = false; MY.waited = 0
}
inline leave() { close_session; gone() }

#include "store.pml"
#include "hosts.pml"

#define kills_now(h) (fence_due(h) || host[h].tree == Killed || \
  host[h].tree == Runs && (due(h) && guard_up(h) || host[h].guard == Dead && wrapper_up(h)))
#define starts_now(h) (guard_up(h) && (host[h].phase == Looked || host[h].phase == Ready))
#ifdef PROMPT /* nobody dawdles, and every question that was not held up is answered within the unit */
#define acts_now(h) (guard_up(h) && (host[h].phase == Claiming && !host[h].told_to_wait || host[h].phase == Leased || \
  host[h].phase == Published || host[h].phase == Ending || host[h].phase == Running && \
  (host[h].tree == Nothing || beats(h) || host[h].wrapper == Dead)))
#else
#define acts_now(h) false
#endif
#define idle(h) (host[h].frozen || !kills_now(h) && !starts_now(h) && !acts_now(h))
#if HOSTS > 2
#define calm (idle(0) && idle(1) && idle(2))
#else
#define calm (idle(0) && idle(1))
#endif
#ifdef CLOCK_STANDS_STILL
#define counts(h) (!host[h].frozen)
#else
#define counts(h) true
#endif

#if defined(PAUSES) || defined(SHARDS)
proctype Others() {
  do
#ifdef PAUSES
  :: d_step { !paused -> paused = true; MARK(key_is_paused) } /* and the command that paused it has returned */
  :: d_step { paused -> paused = false; MARK(key_is_resumed) }
#endif
#ifdef SHARDS
  :: d_step { divided[1] == 0 -> divided[1] = 2; MARK(another_shard_is_granted) }
#endif
  od
}
#endif

proctype Time() {
  byte h;
  do
  :: d_step { calm -> MARK(a_third_of_the_ttl_passes);
       if :: lease_left > 0 -> lease_left-- :: else fi;
       h = 0;
       do
       :: h < HOSTS ->
          if :: MY.trust > 0 && counts(h) -> MY.trust-- :: else fi;
          if :: !MY.frozen && (MY.guard == Up || MY.wrapper == Up) -> MY.blind = false :: else fi;
          MY.told_to_wait = false;
#ifdef PROMPT
          if
          :: MY.phase == Claiming && guard_up(h) -> MY.waited++; promise(no_key_is_blocked, MY.waited <= LONGEST_WAIT)
          :: else
          fi;
#endif
          h++
       :: else -> break
       od;
       h = 0;
       do :: h < HOSTS -> never_two_at_a_time(); h++ :: else -> break od;
       h = 0 }
  :: d_step { may_fail && lease_owner != 0 && lease_left <= TTL ->
       lease_left = TTL + 1; faults++; wait_anew(); MARK(clock_is_set_back) }
  od
}

init {
  byte h;
  atomic {
    do
    :: h <= FIRINGS -> execution[h] = Unknown; spooled[h] = Unknown;
#ifdef SHARDS
       shards[h] = 1;
#endif
       h++
    :: else -> h = 0; break
    od;
    do
    :: h < HOSTS -> gone(); run Store(h); run Guard(h); run Tree(h); run Wrapper(h); run Nemesis(h); h++
    :: else -> break
    od;
#if defined(PAUSES) || defined(SHARDS)
    run Others();
#endif
    run Late(); run Time()
  }
}
