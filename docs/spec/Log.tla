-------------------------------- MODULE Log --------------------------------
(***************************************************************************)
(* The log of one partition: replication to in-sync replicas, the high     *)
(* watermark, leader failover, and the conditional append, which succeeds  *)
(* only if the log ends at the expected offset.                            *)
(*                                                                         *)
(* Ownership.tla has one in-sync set that never changes. Here it shrinks   *)
(* and grows, high watermarks lag behind, followers compare leader epochs  *)
(* only, and clients repeat their appends at any broker.                   *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Brokers,     \* the replicas
    Appends,     \* the appends of clients; each may be sent any number of times
    MaxEpoch,    \* bound: leader epochs
    MaxRestarts, \* bound: restarts of brokers
    Bug          \* "none", or the name of a wrong step that is allowed

VARIABLES
    \* In ZooKeeper
    leader, epoch, isr,
    \* At a broker
    at,         \* at[b]: the leader epoch that it knows
    leads,      \* leads[b]: it believes that it leads in that epoch
    start,      \* start[b]: where its log ended when it began to lead
    waitsFor,   \* waitsFor[b]: the replicas whose copies its high watermark waits for
    alone,      \* alone[b]: as far as it knows, it may be the only replica in sync
    ends,       \* ends[b][f]: the log end of follower f, as far as the leader has heard; -1: not yet
    highWater,  \* highWater[b]
    waiting,    \* waiting[b]: requests that wait for their answer, [append, offset, ok]
    log,        \* log[b]: a sequence of records [epoch, append]; on the disk
    \* Clients
    expected,   \* expected[a]: the offset at which the append is to land
    succeeded,  \* the answers with success, [append, offset]
    refused,    \* the appends that were answered OFFSET_MISMATCH
    \* Bounds
    restarts,
    unclean     \* whether a replica out of sync has been elected

zookeeper == <<leader, epoch, isr>>
known     == <<at, leads, start, alone>>
leading   == <<known, waitsFor, ends, waiting>>
bounds    == <<restarts, unclean>>
clients   == <<expected, succeeded, refused>>
vars      == <<zookeeper, leading, highWater, log, clients, bounds>>

Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b
Prefix(s, n) == SubSeq(s, 1, n)
IsPrefix(s, t) == Len(s) <= Len(t) /\ Prefix(t, Len(s)) = s

(* Where two logs part, found as a follower finds it: by leader epochs alone. *)
Common(s, t) ==
    LET same(n) == \A i \in 1..n : s[i].epoch = t[i].epoch
    IN  CHOOSE n \in 0..Min(Len(s), Len(t)) :
            /\ same(n)
            /\ \A m \in 0..Min(Len(s), Len(t)) : m > n => ~same(m)

(* The broker leads, and holds its lease: no other can lead (AtMostOneConfirmed in Ownership.tla). *)
IsCurrent(b) == leads[b] /\ leader = b /\ epoch = at[b]

Offsets(b, a) == {i \in 1..Len(log[b]) : log[b][i].append = a}

-----------------------------------------------------------------------------
Init ==
    /\ leader \in Brokers
    /\ epoch = 1 /\ isr = Brokers
    /\ at = [b \in Brokers |-> 1]
    /\ leads = [b \in Brokers |-> b = leader]
    /\ start = [b \in Brokers |-> 0]
    /\ waitsFor = [b \in Brokers |-> IF b = leader THEN Brokers ELSE {}]
    /\ alone = [b \in Brokers |-> FALSE]
    /\ ends = [b \in Brokers |-> [f \in Brokers |-> -1]]
    /\ highWater = [b \in Brokers |-> 0]
    /\ waiting = [b \in Brokers |-> {}]
    /\ log = [b \in Brokers |-> <<>>]
    /\ expected \in [Appends -> 0..Cardinality(Appends) - 1]
    /\ succeeded = {} /\ refused = {} /\ restarts = 0 /\ unclean = FALSE

-----------------------------------------------------------------------------
(* A client sends an append, for the first time or again, to a broker that believes that it leads. A record
   that the log has already is not appended and not judged again: its retry waits for the same answer. Before a
   client tries again it closes the connection of its last try, so only the last try is answered. *)
Request(b, a) ==
    LET found == Offsets(b, a)
        end == Len(log[b])
        duplicate == found # {} /\ Bug # "condition-before-dedupe"
        offset == IF duplicate THEN (CHOOSE i \in found : TRUE) - 1 ELSE end
        ok == duplicate \/ expected[a] = end \/ Bug = "condition-not-checked"
    IN
    /\ leads[b]
    /\ a \notin refused /\ \A s \in succeeded : s.append # a
    /\ waiting' = [c \in Brokers |->
           {w \in waiting[c] : w.append # a}
               \union IF c = b THEN {[append |-> a, offset |-> offset, ok |-> ok]} ELSE {}]
    /\ log' = IF ok /\ ~duplicate /\ found = {}
              THEN [log EXCEPT ![b] = Append(@, [epoch |-> at[b], append |-> a])] ELSE log
    /\ waiting' # waiting \/ log' # log
    /\ UNCHANGED <<zookeeper, known, waitsFor, ends, highWater, clients, bounds>>

(* A success is answered when the record is committed, by any broker that believes that it leads: with ZooKeeper
   out of reach the followers prove that it may. A leader that is alone in sync has no followers that prove
   anything, and needs its lease. A mismatch is answered when everything before the offset
   that it names is committed, by a broker that holds its lease (a former leader's end proves nothing), once
   all replicas in sync have fetched in its epoch (one that has not may still have an earlier try of the same
   append, lead next, and commit it). *)
Answer(b, w) ==
    /\ w \in waiting[b]
    /\ leads[b] \/ (Bug = "settled-by-former-leader" /\ w.ok)
    /\ IF w.ok
       THEN /\ highWater[b] > w.offset \/ ~leads[b]
            /\ ~alone[b] \/ IsCurrent(b) \/ Bug = "alone-without-lease"
            /\ succeeded' = succeeded \union {[append |-> w.append, offset |-> w.offset]}
            /\ UNCHANGED refused
       ELSE /\ highWater[b] >= w.offset
            /\ IsCurrent(b) \/ Bug = "refused-without-lease"
            /\ \/ \A f \in waitsFor[b] : f = b \/ ends[b][f] >= 0
               \/ Bug = "refused-before-heard"
            /\ refused' = refused \union {w.append}
            /\ UNCHANGED succeeded
    /\ waiting' = [waiting EXCEPT ![b] = @ \ {w}]
    /\ UNCHANGED <<zookeeper, known, waitsFor, ends, highWater, log, expected, bounds>>

-----------------------------------------------------------------------------
(* A follower fetches from the leader of its epoch: it cuts off what the leader does not have, and copies one
   record, unless the answer is lost. The leader hears where the follower's log ended before; the follower, the
   high watermark. *)
Fetch(f, b) ==
    LET n == Common(log[f], log[b])
        kept == Prefix(log[f], n)
    IN
    \E copied \in {kept, IF n < Len(log[b]) THEN Append(kept, log[b][n + 1]) ELSE kept} :
    /\ f # b /\ leads[b] /\ ~leads[f] /\ at[f] = at[b]
    /\ log' = [log EXCEPT ![f] = copied]
    /\ ends' = [ends EXCEPT ![b][f] = n]
    /\ highWater' = [highWater EXCEPT ![f] = Min(highWater[b], Len(copied))]
    /\ log' # log \/ ends' # ends \/ highWater' # highWater
    /\ UNCHANGED <<zookeeper, known, waitsFor, waiting, clients, bounds>>

(* The leader raises its high watermark to what all replicas have that it waits for. *)
RaiseHighWater(b) ==
    LET has(n) == {f \in Brokers : f = b \/ ends[b][f] >= n}
        copied(n) == IF Bug = "majority-commits"
                     THEN 2 * Cardinality(has(n)) > Cardinality(Brokers)
                     ELSE waitsFor[b] \subseteq has(n)
    IN
    /\ leads[b]
    /\ \E n \in highWater[b] + 1..Len(log[b]) :
        /\ copied(n) /\ \A m \in n + 1..Len(log[b]) : ~copied(m)
        /\ highWater' = [highWater EXCEPT ![b] = n]
    /\ UNCHANGED <<zookeeper, leading, log, clients, bounds>>

-----------------------------------------------------------------------------
(* In-sync sets. A leader proposes a change, which is written only while it leads in the same epoch. It waits
   for a new member before that is written, and for a former one until that is written. *)

ProposeJoin(b, f) ==
    /\ leads[b] /\ f \notin waitsFor[b]
    /\ ends[b][f] >= Max(highWater[b], start[b])
    /\ waitsFor' = [waitsFor EXCEPT ![b] = @ \union {f}]
    /\ alone' = [alone EXCEPT ![b] = @ /\ Bug # "counts-proposed-follower"]
    /\ UNCHANGED <<zookeeper, at, leads, start, ends, highWater, waiting, log, clients, bounds>>

WriteJoin(b, f) ==
    /\ IsCurrent(b) /\ f \in waitsFor[b] /\ f \notin isr
    /\ isr' = isr \union {f}
    /\ UNCHANGED <<leader, epoch, leading, highWater, log, clients, bounds>>

ProposeLeave(b, f) ==
    /\ Bug = "shrinks-before-written"
    /\ leads[b] /\ f \in waitsFor[b] /\ f # b
    /\ waitsFor' = [waitsFor EXCEPT ![b] = @ \ {f}]
    /\ UNCHANGED <<zookeeper, known, ends, highWater, waiting, log, clients, bounds>>

WriteLeave(b, f) ==
    /\ IsCurrent(b) /\ f \in isr /\ f # b
    /\ isr' = isr \ {f}
    /\ alone' = [alone EXCEPT ![b] = @ \/ isr \ {f} = {b}]
    /\ UNCHANGED <<leader, epoch, at, leads, start, waitsFor, ends, waiting, highWater, log, clients, bounds>>

(* The leader hears what is written; proposals that were not written are withdrawn. *)
LearnIsr(b) ==
    /\ IsCurrent(b) /\ (waitsFor[b] # isr \/ alone[b] # (isr = {b}))
    /\ waitsFor' = [waitsFor EXCEPT ![b] = isr]
    /\ alone' = [alone EXCEPT ![b] = isr = {b}]
    /\ UNCHANGED <<zookeeper, at, leads, start, ends, highWater, waiting, log, clients, bounds>>

-----------------------------------------------------------------------------
(* The controller makes another member of the in-sync set the leader. The old one may be dead, which takes it
   out of the set, or live. *)
Elect(b) ==
    /\ ~unclean /\ b \in isr /\ b # leader
    /\ leader' = b
    /\ epoch' = IF Bug = "leader-epoch-kept" THEN epoch ELSE epoch + 1
    /\ isr' \in {isr, isr \ {leader}}
    /\ UNCHANGED <<leading, highWater, log, clients, bounds>>

(* The last replica in sync leads, and is cut off from ZooKeeper until its session ends. An operator has another
   replica elected, and thereby gives up what that one lacks. What is acknowledged from then on must stay. (If
   more replicas are cut off that still follow a former leader, nothing but ZooKeeper could tell them.) No other
   election or restart follows: that bounds the states. *)
ElectUnclean(b) ==
    /\ ~unclean /\ isr = {leader} /\ b # leader
    /\ at[leader] = epoch /\ \A c \in Brokers : leads[c] <=> c = leader
    /\ leader' = b /\ epoch' = epoch + 1 /\ isr' = {b}
    /\ unclean' = TRUE
    /\ succeeded' = {s \in succeeded : IsPrefix(Prefix(log[leader], s.offset + 1), log[b])}
    /\ UNCHANGED <<leading, highWater, log, expected, refused, restarts>>

(* A broker hears who leads. Requests that wait for a former leader's answer are refused: try again. *)
Hear(b) ==
    /\ at[b] < epoch \/ (leads[b] # (leader = b))
    /\ at' = [at EXCEPT ![b] = epoch]
    /\ leads' = [leads EXCEPT ![b] = leader = b]
    /\ start' = [start EXCEPT ![b] = IF leader = b THEN Len(log[b]) ELSE 0]
    /\ waitsFor' = [waitsFor EXCEPT ![b] = IF leader = b THEN isr ELSE {}]
    /\ alone' = [alone EXCEPT ![b] = leader = b /\ isr = {b}]
    /\ ends' = [ends EXCEPT ![b] = [f \in Brokers |-> -1]]
    /\ waiting' = [waiting EXCEPT ![b] = IF Bug = "settled-by-former-leader" THEN @ ELSE {}]
    /\ UNCHANGED <<zookeeper, highWater, log, clients, bounds>>

(* A process ends and starts again. Its log and its checkpoint of the high watermark are on the disk. *)
Restart(b) ==
    /\ ~unclean /\ restarts < MaxRestarts
    /\ restarts' = restarts + 1
    /\ at' = [at EXCEPT ![b] = 0]
    /\ leads' = [leads EXCEPT ![b] = FALSE]
    /\ start' = [start EXCEPT ![b] = 0]
    /\ waitsFor' = [waitsFor EXCEPT ![b] = {}]
    /\ alone' = [alone EXCEPT ![b] = FALSE]
    /\ ends' = [ends EXCEPT ![b] = [f \in Brokers |-> -1]]
    /\ waiting' = [waiting EXCEPT ![b] = {}]
    /\ highWater' = IF Bug = "high-watermark-at-log-end"
                    THEN [highWater EXCEPT ![b] = Len(log[b])] ELSE highWater
    /\ UNCHANGED <<zookeeper, log, clients, unclean>>

-----------------------------------------------------------------------------
Next ==
    \E b \in Brokers :
        \/ \E a \in Appends : Request(b, a)
        \/ \E w \in waiting[b] : Answer(b, w)
        \/ RaiseHighWater(b) \/ LearnIsr(b) \/ Elect(b) \/ ElectUnclean(b) \/ Hear(b) \/ Restart(b)
        \/ \E f \in Brokers :
            Fetch(f, b) \/ ProposeJoin(b, f) \/ WriteJoin(b, f) \/ ProposeLeave(b, f) \/ WriteLeave(b, f)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* WHAT HOLDS. *)

(* Everything acknowledged stays: the leader has each append that was answered with success, at the offset
   that its client was told. After an unclean election that holds for what the new leader had, and for all that
   is acknowledged afterwards, also by the former leader. *)
AcknowledgedStays ==
    \A b \in Brokers : IsCurrent(b) =>
        \A s \in succeeded :
            /\ s.offset < Len(log[b])
            /\ log[b][s.offset + 1].append = s.append

(* What lies below any broker's high watermark is in the log of the leader, unless an unclean election has
   chosen one that lacks it. *)
CommittedStays ==
    unclean \/ \A b, l \in Brokers : IsCurrent(l) => IsPrefix(Prefix(log[b], highWater[b]), log[l])

(* A successful conditional append found the log ending at the offset that it expected. *)
SuccessFoundTheExpectedEnd ==
    \A s \in succeeded : s.offset = expected[s.append]

(* A refused append is nowhere: not committed, neither before nor after the refusal. *)
RefusedIsNowhere ==
    unclean \/ \A b \in Brokers : \A i \in 1..highWater[b] : log[b][i].append \notin refused

(* No append is committed twice. *)
NothingTwice ==
    \A b \in Brokers : \A i, j \in 1..highWater[b] : log[b][i].append = log[b][j].append => i = j

-----------------------------------------------------------------------------
Bounded == epoch <= MaxEpoch
Symmetry == Permutations(Brokers) \union Permutations(Appends)
=============================================================================
