// Consumers of one process that change the protocol of their group and back (KIP-848), while a producer writes.
// Arguments: bootstrap servers, topic with six partitions and no records, group, name of a classic assignor.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class GroupMigration {
    private static final long WAIT_MS = 300_000;
    private static final int PARTITIONS = 6;
    private static final Map<String, Integer> read = new TreeMap<>();
    private static final List<Member> members = new ArrayList<>();
    private static String[] arguments;
    private static KafkaProducer<String, String> producer;
    private static int written = 0;

    public static void main(String[] given) {
        arguments = given;
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
        join("classic");
        join("classic");
        System.out.println("classic " + members.size());
        join("consumer");
        join("consumer");
        System.out.println("mixed " + members.size());
        leave();
        leave();
        System.out.println("consumer " + members.size());
        join("classic");
        join("classic");
        System.out.println("mixed " + members.size());
        leave();
        leave();
        System.out.println("classic " + members.size());
        producer.flush();
        until("reads all", () -> read.size() == written, false);
        read.forEach((value, times) -> check(times == 1, value + " was read " + times + " times"));
        while (!members.isEmpty()) {
            members.remove(0).consumer.close(Duration.ofSeconds(60));
        }
        System.out.println("read once " + written);
    }

    private static void join(String protocol) {
        members.add(new Member(protocol));
        until("share", GroupMigration::isShared, true);
    }

    private static void leave() {
        members.remove(0).consumer.close(Duration.ofSeconds(60));
        until("share", GroupMigration::isShared, true);
    }

    private static boolean isShared() {
        TreeSet<Integer> all = new TreeSet<>();
        TreeSet<Integer> generations = new TreeSet<>();
        int count = 0;
        for (Member member : members) {
            generations.add(member.consumer.groupMetadata().generationId());
            count += member.consumer.assignment().size();
            member.consumer.assignment().forEach(partition -> all.add(partition.partition()));
            if (member.consumer.assignment().isEmpty()) {
                return false;
            }
        }
        // A member that keeps its partitions while it joins again may not have the next generation yet. What it commits then, as
        // it is closed, is refused.
        return all.size() == PARTITIONS && count == PARTITIONS && generations.size() == 1;
    }

    private static void until(String what, BooleanSupplier condition, boolean writes) {
        long end = System.currentTimeMillis() + WAIT_MS;
        while (!condition.getAsBoolean()) {
            check(System.currentTimeMillis() < end, what);
            if (writes) {
                producer.send(new ProducerRecord<>(arguments[1], written % PARTITIONS, null, "v" + written));
                written++;
            }
            members.forEach(Member::poll);
        }
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            List<Object> had = new ArrayList<>();
            members.forEach(member -> had.add(member.consumer.assignment()));
            throw new IllegalStateException(what + ": " + had + ", read " + read.size() + " of " + written);
        }
    }

    private static class Member implements ConsumerRebalanceListener {
        final KafkaConsumer<String, String> consumer;
        private final Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();

        Member(String protocol) {
            Properties properties = new Properties();
            properties.put("bootstrap.servers", arguments[0]);
            properties.put("group.id", arguments[2]);
            properties.put("group.protocol", protocol);
            properties.put("auto.offset.reset", "earliest");
            properties.put("enable.auto.commit", "false");
            if (protocol.equals("classic")) {
                properties.put("session.timeout.ms", "45000");
                properties.put("heartbeat.interval.ms", "300");
                properties.put(
                    "partition.assignment.strategy", "org.apache.kafka.clients.consumer." + arguments[3]);
            }
            consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(Collections.singletonList(arguments[1]), this);
        }

        void poll() {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(30))) {
                read.merge(record.value(), 1, Integer::sum);
                ends.put(
                    new TopicPartition(record.topic(), record.partition()),
                    new OffsetAndMetadata(record.offset() + 1));
            }
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            Map<TopicPartition, OffsetAndMetadata> theirs = new HashMap<>(ends);
            theirs.keySet().retainAll(partitions);
            consumer.commitSync(theirs);
            ends.keySet().removeAll(partitions);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {}

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            throw new IllegalStateException("lost " + partitions);
        }
    }
}
