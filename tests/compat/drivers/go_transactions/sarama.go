package main

import (
	"fmt"

	"github.com/IBM/sarama"
)

func withSarama(bootstrap, read, written string) {
	producer := saramaProducer(bootstrap, written)
	for _, each := range steps {
		must(producer.BeginTxn())
		_, _, err := producer.SendMessage(
			&sarama.ProducerMessage{Topic: written, Value: sarama.StringEncoder(each.value)})
		must(err)
		position := &sarama.PartitionOffsetMetadata{Partition: 0, Offset: each.offset}
		must(producer.AddOffsetsToTxn(map[string][]*sarama.PartitionOffsetMetadata{read: {position}}, read))
		if each.isCommit {
			must(producer.CommitTxn())
		} else {
			must(producer.AbortTxn())
		}
		fmt.Println("committed", each.isCommit)
	}
	must(producer.Close())

	first := saramaProducer(bootstrap, "sarama-pair")
	must(first.BeginTxn())
	third := &sarama.ProducerMessage{Topic: written, Value: sarama.StringEncoder("third")}
	_, _, err := first.SendMessage(third)
	must(err)
	second := saramaProducer(bootstrap, "sarama-pair")
	_, _, late := first.SendMessage(
		&sarama.ProducerMessage{Topic: written, Value: sarama.StringEncoder("late")})
	if late == nil {
		late = first.CommitTxn()
	}
	fmt.Println("late", refused(late))
	must(second.BeginTxn())
	_, _, err = second.SendMessage(
		&sarama.ProducerMessage{Topic: written, Value: sarama.StringEncoder("third")})
	must(err)
	must(second.CommitTxn())

	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	consumer, err := sarama.NewConsumer([]string{bootstrap}, config)
	must(err)
	partition, err := consumer.ConsumePartition(written, 0, sarama.OffsetOldest)
	must(err)
	for range 3 {
		message := <-partition.Messages()
		fmt.Println("read", string(message.Value))
	}
}

func saramaProducer(bootstrap, transactionalID string) sarama.SyncProducer {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Transaction.ID = transactionalID
	config.Producer.Transaction.Timeout = patience
	// Each transaction waits for the markers of the one before: not only the 50 tries of 100 ms that are the default.
	config.Producer.Transaction.Retry.Max = 1200
	config.Net.MaxOpenRequests = 1
	var producer sarama.SyncProducer
	onceEnded(sarama.ErrConcurrentTransactions, func() (err error) {
		producer, err = sarama.NewSyncProducer([]string{bootstrap}, config)
		return err
	})
	return producer
}
