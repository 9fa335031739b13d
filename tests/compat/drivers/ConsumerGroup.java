// Two consumers of one process in a group of KIP-848: they share a topic, commit, and one takes over.
// Arguments: bootstrap servers, topic with six partitions and 60 records, group, a regular expression for the topic.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.TreeSet;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public class ConsumerGroup {
    private static final long WAIT_MS = 120_000;
    private static int read = 0;

    public static void main(String[] arguments) {
        String topic = arguments[1];
        KafkaConsumer<String, String> first = member(arguments, "one");
        first.subscribe(Collections.singletonList(topic));
        until("reads all", () -> read == 60, List.of(first));
        first.commitSync();
        KafkaConsumer<String, String> second = member(arguments, "two");
        second.subscribe(Collections.singletonList(topic));
        until("share", () -> shares(first, second), List.of(first, second));
        System.out.println("shared " + partitions(first).size() + " " + partitions(second).size());
        first.close(Duration.ofSeconds(30));
        until("takes over", () -> partitions(second).size() == 6, List.of(second));
        System.out.println("took over " + partitions(second).size());
        second.unsubscribe();
        if (arguments.length > 3) {
            second.subscribe(new SubscriptionPattern(arguments[3]));
            until("matches", () -> partitions(second).size() == 6, List.of(second));
            System.out.println("matched " + partitions(second).size());
        }
        second.close(Duration.ofSeconds(30));
        System.out.println("read " + read);
    }

    private static KafkaConsumer<String, String> member(String[] arguments, String instance) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[2]);
        properties.put("group.instance.id", instance);
        properties.put("group.protocol", "consumer");
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }

    private static boolean shares(KafkaConsumer<?, ?> first, KafkaConsumer<?, ?> second) {
        TreeSet<Integer> all = partitions(first);
        all.addAll(partitions(second));
        return all.size() == 6 && partitions(first).size() == 3 && partitions(second).size() == 3;
    }

    private static TreeSet<Integer> partitions(KafkaConsumer<?, ?> consumer) {
        TreeSet<Integer> found = new TreeSet<>();
        for (TopicPartition partition : consumer.assignment()) {
            found.add(partition.partition());
        }
        return found;
    }

    private static void until(
            String what, BooleanSupplier condition, List<KafkaConsumer<String, String>> members) {
        long end = System.currentTimeMillis() + WAIT_MS;
        while (!condition.getAsBoolean()) {
            if (System.currentTimeMillis() > end) {
                List<Object> had = new ArrayList<>();
                members.forEach(member -> had.add(member.assignment()));
                throw new IllegalStateException(what + ": " + had + ", read " + read);
            }
            for (KafkaConsumer<String, String> member : members) {
                read += member.poll(Duration.ofMillis(100)).count();
            }
        }
    }
}
