---------------------------- MODULE Transactions ----------------------------
(***************************************************************************)
(* Transactions whose records are conditional, on partitions of several    *)
(* brokers, one of which has an owner: what the combination guarantees.    *)
(*                                                                         *)
(* Every partition holds one key. A transaction reads the keys as readers  *)
(* of committed records do, and raises each by one, on the condition that  *)
(* the last record with the key is still the one up to which it has read.  *)
(* The log of a partition is a sequence here: Log.tla has its replicas,    *)
(* and Ownership.tla the grants.                                           *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Transactions, \* each is tried once
    Keys,         \* each in a partition of its own
    Owned,        \* the key whose partition has an owner, for whom all transactions write
    MaxGrants,    \* bound: grants after the first
    Bug           \* "none", or the name of a wrong step that is allowed

VARIABLES
    \* In partitions
    log,      \* log[k]: a sequence of records [by, value]
    marked,   \* marked[k]: the transactions whose end marker is in the partition
    \* At the coordinator
    decided,  \* decided[t]: "open", "commit" or "abort"
    \* At the producer of a transaction
    state,    \* state[t]: "open", "failed" (can only be aborted), "committing", "checked" (at the coordinator) or "over"
    seen,     \* seen[t][k]: what it has read, [version, value]; version -1: nothing yet
    wrote,    \* wrote[t]: the keys whose record is acknowledged
    under,    \* under[t]: the grant for which it writes
    \* The owner
    grant,    \* the grant in force
    fence,    \* where the partition ended when it was made
    started,  \* whether its owner has read the partition up to the fence, and begun to work
    saw,      \* the transactions that it found committed there
    \* For the properties
    late,     \* records that were appended after their transaction's marker
    sentLate  \* the transactions whose commit was sent after their grant had ended

vars == <<log, marked, decided, state, seen, wrote, under, grant, fence, started, saw, late, sentLate>>

Last(s) == s[Len(s)]
By(k) == {log[k][i].by : i \in 1..Len(log[k])}
IsCommitted(t) == decided[t] = "commit"

(* The last record with the key, whatever has become of its transaction. *)
Version(k) ==
    IF Bug = "open-records-ignored"
    THEN LET settled == {i \in 1..Len(log[k]) : log[k][i].by \in marked[k]}
         IN  IF settled = {} THEN 0 ELSE CHOOSE i \in settled : \A j \in settled : j <= i
    ELSE Len(log[k])

(* The value of the last record that counts. *)
Value(k) ==
    LET counting == {i \in 1..Len(log[k]) : IsCommitted(log[k][i].by) \/ Bug = "aborted-record-counts"}
    IN  IF counting = {} THEN 0
        ELSE log[k][CHOOSE i \in counting : \A j \in counting : j <= i].value

(* Readers of committed records get to the end of the log only while no transaction is open in it. *)
IsStable(k) == By(k) \subseteq marked[k]

-----------------------------------------------------------------------------
Init ==
    /\ log = [k \in Keys |-> <<>>] /\ marked = [k \in Keys |-> {}]
    /\ decided = [t \in Transactions |-> "open"]
    /\ state = [t \in Transactions |-> "open"]
    /\ seen = [t \in Transactions |-> [k \in Keys |-> [version |-> -1, value |-> 0]]]
    /\ wrote = [t \in Transactions |-> {}]
    /\ under = [t \in Transactions |-> 0]
    /\ grant = 0 /\ fence = 0 /\ started = FALSE /\ saw = {}
    /\ late = {} /\ sentLate = {}

-----------------------------------------------------------------------------
(* It reads a key up to the end of the log, once nothing is open there. *)
Read(t, k) ==
    /\ state[t] = "open" /\ seen[t][k].version = -1
    /\ IsStable(k) \/ Bug = "open-records-ignored"
    /\ seen' = [seen EXCEPT ![t][k] = [version |-> Version(k), value |-> Value(k)]]
    /\ UNCHANGED <<log, marked, decided, state, wrote, under, grant, fence, started, saw, late, sentLate>>

(* The leader judges the condition, and appends or refuses. It takes no record of a transaction that its
   coordinator does not confirm, and none for an owner that has lost its grant. *)
Write(t, k) ==
    LET holds == Version(k) = seen[t][k].version
        mayWrite == k # Owned \/ under[t] = grant
        ok == holds /\ mayWrite
    IN
    /\ state[t] = "open" /\ seen[t][k].version # -1 /\ k \notin wrote[t]
    /\ decided[t] = "open" \/ Bug = "not-verified"
    /\ log' = IF ok THEN [log EXCEPT ![k] = Append(@, [by |-> t, value |-> seen[t][k].value + 1])] ELSE log
    /\ wrote' = IF ok THEN [wrote EXCEPT ![t] = @ \union {k}] ELSE wrote
    /\ late' = IF ok /\ t \in marked[k] THEN late \union {<<t, k>>} ELSE late
    /\ state' = IF ok \/ Bug = "refusal-overlooked" THEN state ELSE [state EXCEPT ![t] = "failed"]
    /\ wrote' # wrote \/ state' # state
    /\ UNCHANGED <<marked, decided, seen, under, grant, fence, started, saw, sentLate>>

(* Its producer asks the coordinator to commit, once every record is acknowledged. *)
SendCommit(t) ==
    /\ state[t] = "open"
    /\ wrote[t] = Keys \/ (Bug = "refusal-overlooked" /\ wrote[t] # {})
    /\ state' = [state EXCEPT ![t] = "committing"]
    /\ sentLate' = IF under[t] # grant THEN sentLate \union {t} ELSE sentLate
    /\ UNCHANGED <<log, marked, decided, seen, wrote, under, grant, fence, started, saw, late>>

(* The coordinator reads whether the grant is in force; a new one may be made before it decides. *)
Check(t) ==
    /\ state[t] = "committing"
    /\ state' = [state EXCEPT ![t] = IF under[t] = grant \/ Bug = "grant-unchecked" THEN "checked" ELSE "failed"]
    /\ UNCHANGED <<log, marked, decided, seen, wrote, under, grant, fence, started, saw, late, sentLate>>

Decide(t) ==
    /\ state[t] = "checked"
    /\ decided' = IF decided[t] = "open" THEN [decided EXCEPT ![t] = "commit"] ELSE decided
    /\ state' = [state EXCEPT ![t] = "over"]
    /\ UNCHANGED <<log, marked, seen, wrote, under, grant, fence, started, saw, late, sentLate>>

(* By its producer, or because it is open for too long, or because another producer has taken over. The
   producer may not know, and go on. *)
Abort(t) ==
    /\ decided[t] = "open" /\ state[t] # "over"
    /\ decided' = [decided EXCEPT ![t] = "abort"]
    /\ state' = IF state[t] = "failed" THEN [state EXCEPT ![t] = "over"] ELSE state
    /\ UNCHANGED <<log, marked, seen, wrote, under, grant, fence, started, saw, late, sentLate>>

Mark(t, k) ==
    /\ decided[t] # "open" \/ (Bug = "marked-before-decided" /\ state[t] = "committing")
    /\ t \notin marked[k]
    /\ marked' = [marked EXCEPT ![k] = @ \union {t}]
    /\ UNCHANGED <<log, decided, state, seen, wrote, under, grant, fence, started, saw, late, sentLate>>

-----------------------------------------------------------------------------
(* Another owner takes over, and reads its partition as a reader of committed records, up to its fence. The
   transactions that have not read anything yet are its own. *)
Take ==
    /\ grant < MaxGrants
    /\ grant' = grant + 1 /\ fence' = Len(log[Owned]) /\ started' = FALSE /\ saw' = {}
    /\ under' = [t \in Transactions |->
           IF \A k \in Keys : seen[t][k].version = -1 THEN grant + 1 ELSE under[t]]
    /\ UNCHANGED <<log, marked, decided, state, seen, wrote, late, sentLate>>

Start ==
    /\ grant > 0 /\ ~started
    /\ \/ \A i \in 1..fence : log[Owned][i].by \in marked[Owned]
       \/ Bug = "starts-unsettled"
    /\ started' = TRUE
    /\ saw' = {log[Owned][i].by : i \in {j \in 1..fence : IsCommitted(log[Owned][j].by)}}
    /\ UNCHANGED <<log, marked, decided, state, seen, wrote, under, grant, fence, late, sentLate>>

Next ==
    \/ \E t \in Transactions, k \in Keys : Read(t, k) \/ Write(t, k) \/ Mark(t, k)
    \/ \E t \in Transactions : SendCommit(t) \/ Check(t) \/ Decide(t) \/ Abort(t)
    \/ Take \/ Start

Spec == Init /\ [][Next]_vars

Symmetric == Permutations(Transactions)

-----------------------------------------------------------------------------
(* What is committed has all its records. *)
AllOrNone ==
    \A t \in Transactions : IsCommitted(t) => \A k \in Keys : t \in By(k)

(* No change is lost, and no change is made to what does not count: every value is the number of transactions
   that are committed, in the order of the log. *)
NoChangeIsLost ==
    \A k \in Keys :
        LET committed == SelectSeq(log[k], LAMBDA record : IsCommitted(record.by))
        IN  \A i \in 1..Len(committed) : committed[i].value = i

(* No record opens a transaction that nobody will end. *)
NothingHangs == late = {}

(* Once a grant has ended, no commit of what was written for it is accepted. *)
LostOwnerDoesNotCommit == \A t \in sentLate : ~IsCommitted(t)

(* An owner that has begun to work knows the end of everything that was written before it. *)
OwnerKnowsThePast ==
    started => saw = {t \in By(Owned) : IsCommitted(t) /\ under[t] < grant}

(* What a marker says was decided before. *)
MarkersFollowDecisions ==
    \A k \in Keys : \A t \in marked[k] : decided[t] # "open"
=============================================================================
