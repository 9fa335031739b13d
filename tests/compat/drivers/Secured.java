import java.io.FileReader;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Driver of Kafka's own Java clients: `java -cp … Secured.java closed-topic group (properties topic)…`. With each file of
 * properties it writes "value" to the topic, reads it as a member of the group, and prints it behind "answer: "; then it
 * writes to the closed topic, and prints the name of the error in the same way. What fails with one file is printed too,
 * and the next one is tried.
 */
public class Secured {
    public static void main(String[] arguments) throws Exception {
        for (int next = 2; next < arguments.length; next += 2) {
            System.out.println("file: " + arguments[next]);
            try {
                go(arguments[next], arguments[next + 1], arguments[0], arguments[1]);
            } catch (Exception error) {
                error.printStackTrace(System.out);
            }
        }
    }

    private static void go(String path, String topic, String closed, String group) throws Exception {
        Properties properties = new Properties();
        try (FileReader file = new FileReader(path)) {
            properties.load(file);
        }
        properties.put("key.serializer", StringSerializer.class.getName());
        properties.put("value.serializer", StringSerializer.class.getName());
        properties.put("key.deserializer", StringDeserializer.class.getName());
        properties.put("value.deserializer", StringDeserializer.class.getName());
        properties.put("group.id", group);
        properties.put("auto.offset.reset", "earliest");
        properties.put("max.block.ms", "120000");
        properties.put("enable.idempotence", "false");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties);
                KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties)) {
            producer.send(new ProducerRecord<>(topic, "value")).get();
            consumer.subscribe(List.of(topic));
            ConsumerRecords<String, String> records = ConsumerRecords.empty();
            while (records.isEmpty()) {
                records = consumer.poll(Duration.ofSeconds(1));
            }
            System.out.println("answer: " + records.iterator().next().value());
            try {
                producer.send(new ProducerRecord<>(closed, "value")).get();
                System.out.println("answer: written");
            } catch (ExecutionException error) {
                System.out.println("answer: " + error.getCause().getClass().getSimpleName());
            }
        }
    }
}
