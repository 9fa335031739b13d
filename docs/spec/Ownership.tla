----------------------------- MODULE Ownership -----------------------------
(***************************************************************************)
(* How a client becomes the only owner of a partition, and how the brokers *)
(* keep out all others: claim, persist, guard, fence, confirm.             *)
(*                                                                         *)
(* A step of this specification is one message handled by a broker, one    *)
(* write to ZooKeeper, or one fault. README.md names the file of the code  *)
(* that carries out each step, and says what is left out.                  *)
(*                                                                         *)
(* One number stands for the grants of a resource: its incarnation. The    *)
(* record of a resource has the owner of each incarnation, in order, so    *)
(* the incarnation in force is the length of that sequence.                *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Brokers, Clients, Resources,  \* sets of model values
    MaxGrants,                    \* bound: grants of a resource
    MaxEpoch,                     \* bound: leader epochs of a resource
    MaxLog,                       \* bound: records in a log
    MaxFaults,                    \* bound: crashes of brokers, ends of their leases, replicas that lag
    Bug                           \* "none", or the name of a wrong step that is allowed

VARIABLES
    \* In ZooKeeper
    leader,      \* leader[r]: the broker that leads the partition
    epoch,       \* epoch[r]: its leader epoch
    insync,      \* insync[r]: the replicas that may be elected
    record,      \* record[r]: [owners, ended, fence], the ownership record
    registered,  \* registered[b]: the broker's session has not expired
    \* In the memory of a broker
    lease,       \* lease[b]: by the broker's own clock its session cannot have expired yet
    orders,      \* orders[b]: the controller has told the broker what it leads since it registered
    role,        \* role[b][r]: [epoch, leads, yielded, followed], what the broker knows about leadership
    known,       \* known[b][r]: [owners, ended, attached, fence], what it knows as the leader
    write,       \* write[b][r]: the write to ZooKeeper that is under way
    \* On the disks
    log,         \* log[b][r]: a sequence of records [epoch, incarnation, by]
    \* History: not part of the system, only read by the properties
    committed,   \* committed[r]: the longest log that all replicas in sync had
    told,        \* told[r]: [incarnation, client, fence] of the latest confirmation
    left,        \* left[r]: the latest incarnation whose owner has released it, fallen silent or been displaced
    faults       \* number of crashes, ends of leases and replicas removed from the in-sync set so far

zookeeper == <<leader, epoch, insync, record, registered>>
brokers   == <<lease, orders, role, known, write>>
history   == <<committed, told, left>>
vars      == <<zookeeper, brokers, log, history, faults>>

NoFence == -1
IfFree  == 0      \* what a claim names that takes a resource only if nobody owns it
Nobody  == "nobody"  \* the owner of an interlude: strangers have come first after an owner has gone
Idle    == [stage |-> "idle"]
Nothing == [owners |-> <<>>, ended |-> "no", attached |-> FALSE, fence |-> 0]

Last(s)        == s[Len(s)]
IsPrefix(s, t) == Len(s) <= Len(t) /\ SubSeq(t, 1, Len(s)) = s
Min(a, b)      == IF a < b THEN a ELSE b
Max(a, b)      == IF a > b THEN a ELSE b

(* The number of records, from the start, that two logs have in common. *)
Common(s, t) ==
    LET same(n) == \A i \in 1..n : s[i] = t[i]
    IN  CHOOSE n \in 0..Min(Len(s), Len(t)) :
            /\ same(n)
            /\ \A m \in 0..Min(Len(s), Len(t)) : m > n => ~same(m)

-----------------------------------------------------------------------------
(* What a broker asks itself before it answers. *)

Leads(b, r)   == role[b][r].leads
IsOwned(k)    == k.owners # <<>> /\ k.ended = "no"
HasTurn(b, r) == Leads(b, r) /\ write[b][r] = Idle

(* The lease on the right to confirm: asked at the moment of every answer. *)
MayConfirm(b, r) ==
    /\ Leads(b, r)
    /\ lease[b]
    /\ orders[b]
    /\ ~role[b][r].yielded

(* Every record before the fence is committed, and no record behind it can come from a replica that has not
   followed this leader yet. *)
IsFenceReached(b, r) ==
    /\ \/ IsPrefix(SubSeq(log[b][r], 1, known[b][r].fence), committed[r])
       \/ Bug = "fence-not-committed"
    /\ role[b][r].followed \/ Bug = "fence-before-followed"

(* The broker would answer the owner that it knows: "yours". *)
Confirms(b, r) ==
    /\ MayConfirm(b, r)
    /\ IsOwned(known[b][r])
    /\ known[b][r].attached
    /\ IsFenceReached(b, r)

-----------------------------------------------------------------------------
Init ==
    /\ leader \in [Resources -> Brokers]
    /\ epoch = [r \in Resources |-> 1]
    /\ insync = [r \in Resources |-> Brokers]
    /\ record = [r \in Resources |-> [owners |-> <<>>, ended |-> "no", fence |-> NoFence]]
    /\ registered = [b \in Brokers |-> TRUE]
    /\ lease = [b \in Brokers |-> TRUE]
    /\ orders = [b \in Brokers |-> TRUE]
    /\ role = [b \in Brokers |-> [r \in Resources |->
                  [epoch |-> 1, leads |-> leader[r] = b, yielded |-> FALSE,
                   followed |-> leader[r] = b]]]
    /\ known = [b \in Brokers |-> [r \in Resources |-> Nothing]]
    /\ write = [b \in Brokers |-> [r \in Resources |-> Idle]]
    /\ log = [b \in Brokers |-> [r \in Resources |-> <<>>]]
    /\ committed = [r \in Resources |-> <<>>]
    /\ told = [r \in Resources |-> [incarnation |-> 0, client |-> "nobody", fence |-> 0]]
    /\ left = [r \in Resources |-> 0]
    /\ faults = 0

-----------------------------------------------------------------------------
(* CLAIM. The leader judges a claim when it is its turn, and sends the new
   record to ZooKeeper. Nothing has changed yet. *)

Send(b, r, kind, client, named, owners) ==
    write' = [write EXCEPT ![b][r] =
        [stage |-> "sent", kind |-> kind, client |-> client, named |-> named, owners |-> owners,
         base |-> known[b][r].owners, epoch |-> role[b][r].epoch]]

(* Which generations a claim may name, to be granted: none if the resource is free, else the one in force. (A
   later one has the same effect here, and so has naming a generation while the resource is free.) *)
IsGranted(k, named) ==
    \/ named = IfFree /\ ~IsOwned(k)
    \/ named # IfFree /\ IsOwned(k) /\ named = Len(k.owners)
    \/ named # IfFree /\ named < Len(k.owners) /\ Bug = "stale-claim-granted"

(* The owners, once the claim is granted. *)
OwnersAfter(k, client, named) ==
    IF k.owners # <<>> /\ (\/ named # IfFree /\ Bug = "equal-generation-not-raised"
                           \/ named = IfFree /\ Bug = "promoted-without-a-raise")
    THEN [k.owners EXCEPT ![Len(k.owners)] = client]
    ELSE Append(k.owners, client)

Claim(b, r, client, named) ==
    LET k == known[b][r] IN
    /\ HasTurn(b, r) /\ MayConfirm(b, r)
    /\ ~(IsOwned(k) /\ Last(k.owners) = client)
    /\ IsGranted(k, named)
    /\ Send(b, r, "grant", client, named, OwnersAfter(k, client, named))
    /\ UNCHANGED <<zookeeper, lease, orders, role, known, log, history, faults>>

(* The owner resumes its grant on another connection, or repeats its claim. A grant that has ended is
   written again first. A grant that another has followed, or that was released, stays lost. *)
MayResume(k) == k.owners # <<>> /\ k.ended \in {"no", "silent"} /\ Last(k.owners) # Nobody

Resume(b, r, client, incarnation) ==
    LET k == known[b][r] IN
    /\ HasTurn(b, r) /\ MayConfirm(b, r)
    /\ incarnation \in 1..Len(k.owners) /\ k.owners[incarnation] = client
    /\ \/ incarnation = Len(k.owners) /\ MayResume(k)
       \/ Bug = "zombie-resumes"
    /\ LET after == IF Bug = "zombie-resumes" THEN [k.owners EXCEPT ![Len(k.owners)] = client]
                                              ELSE k.owners
       IN IF k.ended = "no"
          THEN /\ ~k.attached \/ after # k.owners
               /\ known' = [known EXCEPT ![b][r].attached = TRUE, ![b][r].owners = after]
               /\ UNCHANGED write
          ELSE /\ Send(b, r, "revival", client, incarnation, after)
               /\ UNCHANGED known
    /\ UNCHANGED <<zookeeper, lease, orders, role, log, history, faults>>

(* A stranger, which owns nothing, is about to write to a partition whose owner was lost to silence. Before
   that the leader ends the owner's grant for good: it writes an interlude, a grant to nobody. *)
Displace(b, r) ==
    LET k == known[b][r] IN
    /\ HasTurn(b, r) /\ MayConfirm(b, r)
    /\ ~IsOwned(k) /\ MayResume(k)
    /\ Len(log[b][r]) < MaxLog
    /\ Send(b, r, "interlude", Nobody, IfFree, Append(k.owners, Nobody))
    /\ UNCHANGED <<zookeeper, lease, orders, role, known, log, history, faults>>

(* PERSIST. One write replaces exactly the record that the leader has read, and checks that the leader still
   leads in the same epoch. It may arrive at any time, also after the broker has crashed or been replaced. *)
EndedBy(w) == CASE w.kind = "interlude" -> "displaced" [] w.kind = "release" -> "released" [] OTHER -> "no"
IsGrant(w) == w.kind \in {"grant", "interlude"}

Persist(b, r) ==
    LET w == write[b][r] IN
    /\ w # Idle /\ w.stage = "sent"
    /\ IF \/ leader[r] = b /\ epoch[r] = w.epoch /\ record[r].owners = w.base
          \/ Bug = "leadership-not-checked"
          \/ Bug = "generations-begin-anew" /\ leader[r] = b /\ epoch[r] = w.epoch
       THEN /\ record' = [record EXCEPT ![r] =
                   [owners |-> w.owners, ended |-> EndedBy(w),
                    fence |-> IF IsGrant(w) THEN NoFence ELSE record[r].fence]]
            /\ write' = [write EXCEPT ![b][r].stage = "written"]
            /\ left' = IF EndedBy(w) = "no" THEN left ELSE [left EXCEPT ![r] = Max(left[r], Len(w.owners))]
       ELSE /\ write' = [write EXCEPT ![b][r] = Idle]    \* refused: nothing has changed
            /\ UNCHANGED <<record, left>>
    /\ UNCHANGED <<leader, epoch, insync, registered, lease, orders, role, known, log, committed, told, faults>>

(* GUARD and FENCE. The grant is in force once ZooKeeper has answered: from here on the guard admits only the
   new owner's connection. The fence is where the log ends now. *)
PutIntoForce(b, r) ==
    LET w == write[b][r] IN
    /\ w # Idle
    /\ w.stage = "written" \/ (w.stage = "sent" /\ Bug = "granted-before-written")
    /\ Leads(b, r) /\ role[b][r].epoch = w.epoch
    /\ known[b][r].owners = w.base    \* the table does not apply the same write twice
    /\ known[b][r].ended # "no" \/ w.owners # known[b][r].owners \/ w.kind \in {"grant", "release"}
    /\ known' = [known EXCEPT ![b][r] =
           [owners |-> w.owners, ended |-> EndedBy(w), attached |-> EndedBy(w) = "no",
            fence |-> IF IsGrant(w) THEN Len(log[b][r]) ELSE known[b][r].fence]]
    /\ write' = IF w.stage = "written" THEN [write EXCEPT ![b][r] = Idle] ELSE write
    /\ UNCHANGED <<zookeeper, lease, orders, role, log, history, faults>>

(* The broker has begun another epoch before ZooKeeper answered: the claim fails. What was written is in the
   record that the leader of the new epoch reads. *)
GiveUp(b, r) ==
    LET w == write[b][r] IN
    /\ w # Idle /\ w.stage = "written"
    /\ role[b][r].epoch # w.epoch \/ ~Leads(b, r) \/ known[b][r].owners # w.base
    /\ write' = [write EXCEPT ![b][r] = Idle]
    /\ UNCHANGED <<zookeeper, lease, orders, role, known, log, history, faults>>

(* CONFIRM. The broker answers the owner: to a claim, Renew or Resume, or with the records of an owned
   fetch. This is the only step in which anybody is told that it owns. *)
Confirm(b, r) ==
    LET now == [incarnation |-> Len(known[b][r].owners), client |-> Last(known[b][r].owners),
                fence |-> known[b][r].fence] IN
    /\ Confirms(b, r)
    /\ told[r] # now
    /\ told' = [told EXCEPT ![r] = now]
    /\ UNCHANGED <<zookeeper, brokers, log, committed, left, faults>>

-----------------------------------------------------------------------------
(* THE END OF A GRANT. A release is written before it is in force, like a grant. *)

Release(b, r) ==
    LET k == known[b][r] IN
    /\ HasTurn(b, r) /\ MayConfirm(b, r)
    /\ IsOwned(k) /\ k.attached
    /\ Send(b, r, "release", Last(k.owners), IfFree, k.owners)
    /\ UNCHANGED <<zookeeper, lease, orders, role, known, log, history, faults>>

(* The leader ends the grant of a silent owner in its memory; the record follows (Flush). If the leader fails
   in between, the next leader finds the owner, detached, and ends its session once more. *)
Expire(b, r) ==
    LET k == known[b][r] IN
    /\ HasTurn(b, r) /\ IsOwned(k)
    /\ known' = [known EXCEPT ![b][r].ended = "silent", ![b][r].attached = FALSE]
    /\ left' = [left EXCEPT ![r] = Max(left[r], Len(k.owners))]
    /\ UNCHANGED <<zookeeper, lease, orders, role, write, log, committed, told, faults>>

(* The owner's connection broke, and the broker waits `own.release.grace.ms` for its return. *)
Detach(b, r) ==
    /\ HasTurn(b, r) /\ IsOwned(known[b][r]) /\ known[b][r].attached
    /\ known' = [known EXCEPT ![b][r].attached = FALSE]
    /\ UNCHANGED <<zookeeper, lease, orders, role, write, log, history, faults>>

(* The leader writes what no request waits for: that a grant has ended, and the exact fence. It writes no fence
   that it would not confirm: the next leader may have records behind it that this one lacks. *)
Flush(b, r) ==
    LET k == known[b][r]
        isSettled == role[b][r].followed \/ Bug = "fence-written-before-followed"
        now == [owners |-> k.owners, ended |-> k.ended, fence |-> IF isSettled THEN k.fence ELSE NoFence] IN
    /\ HasTurn(b, r) /\ k.owners # <<>>
    /\ leader[r] = b /\ epoch[r] = role[b][r].epoch
    /\ record[r].owners = k.owners /\ record[r] # now
    /\ record' = [record EXCEPT ![r] = now]
    /\ UNCHANGED <<leader, epoch, insync, registered, brokers, log, history, faults>>

(* Wrong steps that end a grant without the owner's doing. *)
EndWithoutReason(b, r) ==
    /\ HasTurn(b, r) /\ IsOwned(known[b][r])
    /\ \/ Bug = "thief-cleared" /\ Len(known[b][r].owners) > 1  \* the loser's connection closes late
       \/ Bug = "evicted-before-judged"                         \* a claim is refused
    /\ known' = [known EXCEPT ![b][r].ended = "silent", ![b][r].attached = FALSE]
    /\ UNCHANGED <<zookeeper, lease, orders, role, write, log, history, faults>>

-----------------------------------------------------------------------------
(* THE LOG. A client may send a write at any time, also long after it has lost the partition; the guard
   decides when the write gets its offset. A connection is known by the incarnation that it served. *)

Append_(b, r, incarnation) ==
    LET k == known[b][r] IN
    /\ Leads(b, r) /\ Len(log[b][r]) < MaxLog
    /\ incarnation \in 1..Len(k.owners)
    /\ \/ IsOwned(k) /\ k.attached /\ incarnation = Len(k.owners) /\ MayConfirm(b, r)
       \/ Bug = "owner-checked-at-the-socket"
    /\ log' = [log EXCEPT ![b][r] = Append(log[b][r],
           [epoch |-> role[b][r].epoch, incarnation |-> incarnation, by |-> "owner"])]
    /\ UNCHANGED <<zookeeper, brokers, history, faults>>

(* A stranger writes where nobody owns the partition (single.writer=claimed), and nobody could come back to
   own it. Its record counts to the time of the latest grant. *)
AppendForeign(b, r) ==
    LET k == known[b][r] IN
    /\ Leads(b, r) /\ Len(log[b][r]) < MaxLog
    /\ ~IsOwned(k)
    /\ \/ ~MayResume(k)
       \/ Bug = "stranger-ends-nothing"
       \/ Bug = "stranger-before-written" /\ write[b][r] # Idle /\ write[b][r].kind = "interlude"
    /\ log' = [log EXCEPT ![b][r] = Append(log[b][r],
           [epoch |-> role[b][r].epoch, incarnation |-> Len(k.owners), by |-> "stranger"])]
    /\ UNCHANGED <<zookeeper, brokers, history, faults>>

(* A follower removes what the leader of its epoch does not have, and copies the next record. *)
Replicate(follower, source, r) ==
    LET mine == log[follower][r] theirs == log[source][r] n == Common(mine, theirs) IN
    /\ Leads(source, r) /\ role[follower][r].epoch = role[source][r].epoch /\ follower # source
    /\ mine # theirs
    /\ log' = [log EXCEPT ![follower][r] = SubSeq(theirs, 1, Min(n + 1, Len(theirs)))]
    /\ UNCHANGED <<zookeeper, brokers, history, faults>>

(* The high watermark rises to what all replicas in sync have, which follow the leader in its epoch. *)
Commit(b, r) ==
    /\ Leads(b, r) /\ role[b][r].epoch = epoch[r]
    /\ \A f \in insync[r] : role[f][r].epoch = role[b][r].epoch
    /\ \A f \in insync[r] : IsPrefix(log[b][r], log[f][r])
    /\ Len(log[b][r]) > Len(committed[r])
    /\ committed' = [committed EXCEPT ![r] = log[b][r]]
    /\ UNCHANGED <<zookeeper, brokers, log, told, left, faults>>

-----------------------------------------------------------------------------
(* LEADERS. The controller writes a new leader when the session of the old one has expired, or when the old
   one, still alive, has acknowledged that it confirms nothing any more. *)

Elect(r, to) ==
    LET old == leader[r] IN
    /\ to # old /\ registered[to] /\ to \in insync[r]
    /\ \/ ~registered[old]
       \/ role[old][r].yielded /\ role[old][r].epoch = epoch[r]
       \/ Bug = "moved-without-yield"
    /\ leader' = [leader EXCEPT ![r] = to]
    /\ epoch' = [epoch EXCEPT ![r] = epoch[r] + 1]
    /\ insync' = IF registered[old] THEN insync ELSE [insync EXCEPT ![r] = insync[r] \ {old}]
    /\ UNCHANGED <<record, registered, brokers, log, history, faults>>

(* The leader removes a replica that lags. *)
Leave(f, r) ==
    LET b == leader[r] IN
    /\ f \in insync[r] /\ f # b /\ faults < MaxFaults
    /\ Leads(b, r) /\ role[b][r].epoch = epoch[r]
    /\ insync' = [insync EXCEPT ![r] = insync[r] \ {f}]
    /\ faults' = faults + 1
    /\ UNCHANGED <<leader, epoch, record, registered, brokers, log, history>>

(* A replica joins the set again once it follows the leader and has everything that is committed. *)
Join(f, r) ==
    LET b == leader[r] IN
    /\ f \notin insync[r] /\ registered[f]
    /\ Leads(b, r) /\ role[b][r].epoch = epoch[r] /\ role[f][r].epoch = epoch[r]
    /\ IsPrefix(committed[r], log[f][r]) /\ IsPrefix(log[f][r], log[b][r])
    /\ insync' = [insync EXCEPT ![r] = insync[r] \union {f}]
    /\ UNCHANGED <<leader, epoch, record, registered, brokers, log, history, faults>>

(* The leader stops to confirm, for the rest of its epoch, and acknowledges it. The acknowledgement counts for
   this registration of the broker: it is void after a crash. *)
Yield(r) ==
    LET b == leader[r] IN
    /\ Leads(b, r) /\ role[b][r].epoch = epoch[r] /\ ~role[b][r].yielded
    /\ registered[b]
    /\ role' = [role EXCEPT ![b][r].yielded = TRUE]
    /\ UNCHANGED <<zookeeper, lease, orders, known, write, log, history, faults>>

(* Every replica in sync has followed the leader in its epoch: none has a record any more that the leader
   lacks. *)
Followed(b, r) ==
    /\ Leads(b, r) /\ ~role[b][r].followed /\ role[b][r].epoch = epoch[r]
    /\ \A f \in insync[r] : role[f][r].epoch = role[b][r].epoch /\ IsPrefix(log[f][r], log[b][r])
    /\ role' = [role EXCEPT ![b][r].followed = TRUE]
    /\ UNCHANGED <<zookeeper, lease, orders, known, write, log, history, faults>>

(* The broker hears from the controller that another leads. *)
Follow(b, r) ==
    /\ registered[b] /\ role[b][r].epoch < epoch[r] /\ leader[r] # b
    /\ role' = [role EXCEPT ![b][r] = [epoch |-> epoch[r], leads |-> FALSE, yielded |-> FALSE,
                                      followed |-> FALSE]]
    /\ known' = [known EXCEPT ![b][r] = Nothing]
    /\ UNCHANGED <<zookeeper, lease, orders, write, log, history, faults>>

(* The broker hears from the controller that it leads, and reads the record first. The leader before it can
   write the record no more. Its owner is detached: it may resume. If the fence was not written yet, or the
   log is shorter, the fence is where the log ends. *)
BeginToLead(b, r) ==
    LET found == record[r] end == Len(log[b][r]) IN
    /\ registered[b] /\ role[b][r].epoch < epoch[r] /\ leader[r] = b
    /\ role' = [role EXCEPT ![b][r] = [epoch |-> epoch[r], leads |-> TRUE, yielded |-> FALSE,
                                      followed |-> FALSE]]
    /\ known' = [known EXCEPT ![b][r] =
           IF Bug = "generations-begin-anew" THEN Nothing
           ELSE [owners |-> found.owners, ended |-> found.ended, attached |-> FALSE,
                 fence |-> IF found.fence \in 0..end THEN found.fence ELSE end]]
    /\ UNCHANGED <<zookeeper, lease, orders, write, log, history, faults>>

-----------------------------------------------------------------------------
(* SESSIONS AND LEASES. The lease ends by the broker's own clock, before its session can have expired: that is
   the condition of SessionExpires. *)

(* A broker that leads nothing has nothing to lose: the faults of its session are left out. *)
Leading(b) == \E r \in Resources : leader[r] = b \/ Leads(b, r)

LeaseEnds(b) ==
    /\ lease[b] /\ Leading(b) /\ faults < MaxFaults
    /\ faults' = faults + 1
    /\ lease' = [lease EXCEPT ![b] = FALSE]
    /\ UNCHANGED <<zookeeper, orders, role, known, write, log, history>>

RenewLease(b) ==
    /\ registered[b] /\ ~lease[b]
    /\ lease' = [lease EXCEPT ![b] = TRUE]
    /\ UNCHANGED <<zookeeper, orders, role, known, write, log, history, faults>>

SessionExpires(b) ==
    /\ registered[b] /\ (~lease[b] \/ Bug = "lease-never-ends")
    /\ Leading(b)
    /\ registered' = [registered EXCEPT ![b] = FALSE]
    /\ UNCHANGED <<leader, epoch, insync, record, brokers, log, history, faults>>

(* The broker notices that its session has expired, and registers again. What it leads may have changed. *)
Register(b) ==
    /\ ~registered[b]
    /\ registered' = [registered EXCEPT ![b] = TRUE]
    /\ lease' = [lease EXCEPT ![b] = FALSE]
    /\ orders' = [orders EXCEPT ![b] = Bug = "confirms-before-orders"]
    /\ UNCHANGED <<leader, epoch, insync, record, role, known, write, log, history, faults>>

(* The controller's first orders after a registration have all been carried out. *)
OrdersDone(b) ==
    /\ registered[b] /\ ~orders[b]
    /\ \A r \in Resources : role[b][r].epoch = epoch[r]
    /\ orders' = [orders EXCEPT ![b] = TRUE]
    /\ UNCHANGED <<zookeeper, lease, role, known, write, log, history, faults>>

(* A process ends and starts again. Its log is on the disk; a write that it has sent may still arrive. *)
Crash(b) ==
    /\ Leading(b) /\ faults < MaxFaults
    /\ faults' = faults + 1
    /\ registered' = [registered EXCEPT ![b] = FALSE]
    /\ lease' = [lease EXCEPT ![b] = FALSE]
    /\ orders' = [orders EXCEPT ![b] = FALSE]
    /\ role' = [role EXCEPT ![b] =
           [r \in Resources |-> [epoch |-> 0, leads |-> FALSE, yielded |-> FALSE, followed |-> FALSE]]]
    /\ known' = [known EXCEPT ![b] = [r \in Resources |-> Nothing]]
    /\ UNCHANGED <<leader, epoch, insync, record, write, log, history>>

-----------------------------------------------------------------------------
Next ==
    \/ \E b \in Brokers, r \in Resources :
        \/ \E c \in Clients, named \in 0..MaxGrants : Claim(b, r, c, named)
        \/ \E c \in Clients, i \in 1..MaxGrants : Resume(b, r, c, i)
        \/ Displace(b, r) \/ AppendForeign(b, r)
        \/ Persist(b, r) \/ PutIntoForce(b, r) \/ GiveUp(b, r) \/ Confirm(b, r)
        \/ Release(b, r) \/ Expire(b, r)
        \/ Detach(b, r) \/ Flush(b, r) \/ EndWithoutReason(b, r)
        \/ \E i \in 1..MaxGrants : Append_(b, r, i)
        \/ \E f \in Brokers : Replicate(f, b, r)
        \/ Commit(b, r)
        \/ Elect(r, b) \/ Follow(b, r) \/ BeginToLead(b, r) \/ Followed(b, r) \/ Leave(b, r) \/ Join(b, r)
    \/ \E r \in Resources : Yield(r)
    \/ \E b \in Brokers :
        LeaseEnds(b) \/ RenewLease(b) \/ SessionExpires(b) \/ Register(b) \/ OrdersDone(b) \/ Crash(b)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* WHAT HOLDS. *)

(* "Confirmed": a broker has answered a client, with error code 0, that it owns. At any moment at most one
   client can be answered so, whichever broker it asks. *)
AtMostOneConfirmed ==
    \A r \in Resources : \A a, b \in Brokers :
        Confirms(a, r) /\ Confirms(b, r) => known[a][r].owners = known[b][r].owners

(* Answers are in the order of the grants: once a client was told that it owns, no earlier owner is told so
   again, and no two clients are told so for one incarnation. *)
ConfirmationsNeverGoBack ==
    [][\A r \in Resources :
         \/ told'[r].incarnation > told[r].incarnation
         \/ told'[r].incarnation = told[r].incarnation
            /\ (told[r].incarnation > 0 => told'[r].client = told[r].client)]_vars

(* Nobody is told that it owns what no record says. *)
ConfirmedIsWritten ==
    \A r \in Resources : told[r].incarnation > 0 =>
        /\ told[r].incarnation <= Len(record[r].owners)
        /\ record[r].owners[told[r].incarnation] = told[r].client

(* Incarnations never go back or repeat: a record only ever gets longer. *)
IncarnationsRise ==
    [][\A r \in Resources : IsPrefix(record[r].owners, record'[r].owners)]_vars

(* No record of a former owner lands at or behind the fence of its successor. *)
NoStaleAppend ==
    \A r \in Resources : \A i \in 1..Len(committed[r]) :
        i > told[r].fence => committed[r][i].incarnation >= told[r].incarnation

(* From an owner's first record under a grant to its last one, every record is its own. *)
NobodyWritesWithinAGrant ==
    \A r \in Resources : \A i, k \in 1..Len(committed[r]) :
        LET first == committed[r][i] last == committed[r][k] IN
        /\ i < k /\ first.by = "owner" /\ last.by = "owner" /\ first.incarnation = last.incarnation
        => \A j \in i..k : committed[r][j].by = "owner" /\ committed[r][j].incarnation = first.incarnation

(* A new owner that has read up to its fence has seen everything: nothing before the fence can vanish. *)
FenceIsCommitted ==
    \A r \in Resources : told[r].fence <= Len(committed[r])

(* Everything acknowledged stays: each leader's log has all that was ever committed. *)
CommittedStays ==
    \A r \in Resources : LET b == leader[r] IN
        Leads(b, r) /\ role[b][r].epoch = epoch[r] => IsPrefix(committed[r], log[b][r])

(* A claim that names a generation takes the resource only if it names the one in force, or a later one. *)
StaleClaimsAreRefused ==
    \A b \in Brokers, r \in Resources : LET w == write[b][r] IN
        w # Idle /\ w.kind = "grant" /\ w.named # IfFree => w.named >= Len(w.base)

(* A grant ends because its owner released it, was silent, or was followed by another: nothing else ends it. *)
GrantsEndForAReason ==
    \A b \in Brokers, r \in Resources :
        Leads(b, r) /\ known[b][r].ended # "no" => Len(known[b][r].owners) <= left[r]

-----------------------------------------------------------------------------
(* BOUNDS of the models. *)

Bounded ==
    /\ \A r \in Resources : epoch[r] <= MaxEpoch
    /\ \A b \in Brokers, r \in Resources :
        /\ Len(known[b][r].owners) <= MaxGrants
        /\ write[b][r] # Idle => Len(write[b][r].owners) <= MaxGrants

(* Two states that differ only in what was told, or in what has ended, are the same to properties of the logs. *)
WithoutAnswers == <<zookeeper, brokers, log, committed, faults>>

Symmetry == Permutations(Brokers) \union Permutations(Clients) \union Permutations(Resources)
=============================================================================
