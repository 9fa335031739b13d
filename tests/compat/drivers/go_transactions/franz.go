package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func franz(bootstrap, read, written string) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*wait)
	defer cancel()
	copyInTransactions(ctx, bootstrap, read, written)
	fence(ctx, bootstrap, written)
	reader, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{written: {0: kgo.NewOffset().AtStart()}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)
	must(err)
	defer reader.Close()
	for found := 0; found < 3; {
		fetches := reader.PollFetches(ctx)
		must(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Println("read", string(record.Value))
			found++
		})
	}
}

// copyInTransactions reads one record in each transaction, as a member of a group: an abort has it read again.
func copyInTransactions(ctx context.Context, bootstrap, read, written string) {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(bootstrap),
		kgo.TransactionalID(written),
		kgo.TransactionTimeout(patience),
		kgo.SessionTimeout(wait),
		kgo.ConsumerGroup(read),
		kgo.ConsumeTopics(read),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
	)
	must(err)
	defer session.Close()
	for number := 0; number < len(steps); {
		fetches := session.PollRecords(ctx, 1)
		must(fetches.Err())
		if fetches.NumRecords() == 0 {
			continue
		}
		must(session.Begin())
		one := &kgo.Record{Topic: written, Value: []byte(steps[number].value)}
		must(session.ProduceSync(ctx, one).FirstErr())
		committed, err := session.End(ctx, kgo.TransactionEndTry(steps[number].isCommit))
		must(err)
		fmt.Println("committed", committed)
		number++
	}
}

func fence(ctx context.Context, bootstrap, written string) {
	var pair [2]*kgo.Client
	for index := range pair {
		client, err := kgo.NewClient(
			kgo.SeedBrokers(bootstrap), kgo.TransactionalID("franz-pair"), kgo.TransactionTimeout(patience),
			kgo.DefaultProduceTopic(written))
		must(err)
		defer client.Close()
		pair[index] = client
		onceEnded(kerr.ConcurrentTransactions, client.BeginTransaction)
		must(client.ProduceSync(ctx, kgo.StringRecord("third")).FirstErr())
	}
	late := pair[0].ProduceSync(ctx, kgo.StringRecord("late")).FirstErr()
	if late == nil {
		late = pair[0].EndTransaction(ctx, kgo.TryCommit)
	}
	fmt.Println("late", refused(late))
	must(pair[1].EndTransaction(ctx, kgo.TryCommit))
}
