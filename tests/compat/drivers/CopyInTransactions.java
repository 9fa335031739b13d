import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Driver of Kafka's own Java clients: `java -cp … CopyInTransactions.java bootstrap read written`. It copies all records of one
 * topic to another, as a member of a group whose offsets are part of the transactions, and aborts every other
 * transaction. Then a second producer fences the first, and the admin client looks at both. Prints one line for each step.
 */
public class CopyInTransactions {
    static final int RECORDS = 60;
    static final int PARTITIONS = 3;
    static final Duration WAIT = Duration.ofMillis(500);
    static final long MARKERS_MS = 120_000;

    final String bootstrap;
    final String read;
    final String written;

    CopyInTransactions(String bootstrap, String read, String written) {
        this.bootstrap = bootstrap;
        this.read = read;
        this.written = written;
    }

    public static void main(String[] arguments) throws Exception {
        CopyInTransactions all = new CopyInTransactions(arguments[0], arguments[1], arguments[2]);
        all.fill();
        all.copy();
        System.out.println("committed " + all.values(all.written, "read_committed", RECORDS).size());
        // The aborted transactions are in the log too.
        int seen = all.values(all.written, "read_uncommitted", RECORDS + 1).size();
        System.out.println("uncommitted " + (seen > RECORDS ? "more" : seen));
        all.fence();
        all.administrate();
    }

    KafkaProducer<String, String> producer(String transactionalId) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("key.serializer", StringSerializer.class.getName());
        properties.put("value.serializer", StringSerializer.class.getName());
        if (transactionalId != null) {
            properties.put("transactional.id", transactionalId);
        }
        return new KafkaProducer<>(properties);
    }

    KafkaConsumer<String, String> consumer(String group, String isolation) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("key.deserializer", StringDeserializer.class.getName());
        properties.put("value.deserializer", StringDeserializer.class.getName());
        properties.put("group.id", group);
        properties.put("isolation.level", isolation);
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("max.poll.records", "10");
        return new KafkaConsumer<>(properties);
    }

    void fill() throws Exception {
        try (KafkaProducer<String, String> producer = producer(null)) {
            for (int number = 0; number < RECORDS; number++) {
                producer.send(new ProducerRecord<>(read, number % PARTITIONS, null, "value-" + number));
            }
        }
    }

    void copy() throws Exception {
        int copied = 0;
        boolean isAborted = false;
        try (KafkaProducer<String, String> producer = producer("copy");
                KafkaConsumer<String, String> consumer = consumer("copiers", "read_committed")) {
            producer.initTransactions();
            consumer.subscribe(List.of(read));
            while (copied < RECORDS) {
                ConsumerRecords<String, String> records = consumer.poll(WAIT);
                if (records.isEmpty()) {
                    continue;
                }
                Map<TopicPartition, Long> starts = new HashMap<>();
                Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
                producer.beginTransaction();
                for (ConsumerRecord<String, String> record : records) {
                    TopicPartition at = new TopicPartition(record.topic(), record.partition());
                    starts.putIfAbsent(at, record.offset());
                    ends.put(at, new OffsetAndMetadata(record.offset() + 1));
                    producer.send(new ProducerRecord<>(written, record.partition(), null, record.value()));
                }
                producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
                isAborted = !isAborted;
                if (isAborted) {
                    producer.flush();
                    producer.abortTransaction();
                    starts.forEach(consumer::seek);
                } else {
                    producer.commitTransaction();
                    copied += records.count();
                }
            }
            long stored = 0;
            TreeSet<TopicPartition> partitions = new TreeSet<>(
                    java.util.Comparator.comparingInt(TopicPartition::partition));
            partitions.addAll(consumer.assignment());
            for (OffsetAndMetadata offset : consumer.committed(partitions).values()) {
                stored += offset.offset();
            }
            System.out.println("copied " + copied + ", offsets " + stored);
        }
    }

    /** The different values of a topic, once there are at least so many records. */
    List<String> values(String topic, String isolation, int least) {
        List<String> found = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer("nobody", isolation)) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (int index = 0; index < PARTITIONS; index++) {
                partitions.add(new TopicPartition(topic, index));
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(at -> consumer.position(at) < ends.get(at)) || found.size() < least) {
                consumer.poll(WAIT).forEach(record -> found.add(record.value()));
            }
        }
        int different = new TreeSet<>(found).size();
        if (different != RECORDS) {
            throw new IllegalStateException(different + " different values with " + isolation);
        }
        return found;
    }

    void fence() {
        try (KafkaProducer<String, String> first = producer("pair");
                KafkaProducer<String, String> second = producer("pair")) {
            first.initTransactions();
            first.beginTransaction();
            first.send(new ProducerRecord<>(written, 0, null, "lost"));
            first.flush();
            second.initTransactions();
            String kind = "none";
            try {
                first.send(new ProducerRecord<>(written, 0, null, "late"));
                first.commitTransaction();
            } catch (RuntimeException error) {
                kind = error.getClass().getSimpleName();
            }
            System.out.println("first " + kind);
            second.beginTransaction();
            second.send(new ProducerRecord<>(written, 0, null, "value-0"));
            second.commitTransaction();
            System.out.println("second committed");
        }
    }

    void administrate() throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        TopicPartition at = new TopicPartition(written, 0);
        try (Admin admin = Admin.create(properties); KafkaProducer<String, String> open = producer("open")) {
            open.initTransactions();
            open.beginTransaction();
            open.send(new ProducerRecord<>(written, 0, null, "unfinished")).get();
            TreeSet<String> listed = new TreeSet<>();
            // A producer is answered before all partitions have their markers.
            admin.listTransactions().all().get().forEach(each -> listed.add(each.transactionalId() + " "
                    + (each.state() == TransactionState.PREPARE_COMMIT ? "CompleteCommit" : each.state())));
            System.out.println("listed " + listed);
            var described = admin.describeTransactions(List.of("open")).description("open").get();
            System.out.println("described " + described.state() + " " + described.topicPartitions());
            // The marker of the pair's last transaction may come to the partition after the answer to its producer.
            long end = System.currentTimeMillis() + MARKERS_MS;
            while (openProducers(admin, at) > 1 && System.currentTimeMillis() < end) {
                Thread.sleep(100);
            }
            System.out.println("open " + openProducers(admin, at));
            admin.fenceProducers(List.of("open")).all().get();
            String kind = "none";
            try {
                open.send(new ProducerRecord<>(written, 0, null, "late")).get();
                open.commitTransaction();
            } catch (ExecutionException | RuntimeException error) {
                kind = "refused";
            }
            System.out.println("fenced " + kind);
        }
    }

    /** How many producers have an open transaction in the partition. */
    static long openProducers(Admin admin, TopicPartition at) throws Exception {
        return admin.describeProducers(List.of(at)).partitionResult(at).get().activeProducers().stream()
                .filter(each -> each.currentTransactionStartOffset().isPresent()).count();
    }
}
