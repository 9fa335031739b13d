import java.io.IOException;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Driver of Kafka's own Java producer: `java -cp … SteadyTransactions.java bootstrap transactional-id topic`. Until its
 * standard input ends, it writes transactions one after the other, each with a record to partitions 0 and 1. Prints the number of each
 * that is committed. An error ends it.
 */
public class SteadyTransactions {
    public static void main(String[] arguments) throws Exception {
        AtomicBoolean isEnded = new AtomicBoolean();
        Thread watcher = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {}
            } catch (IOException error) {
                // The other end is gone.
            }
            isEnded.set(true);
        });
        watcher.setDaemon(true);
        watcher.start();
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("transactional.id", arguments[1]);
        // A busy machine may hold up brokers that are restarted for longer than the minute that is the default.
        properties.put("max.block.ms", "300000");
        properties.put("delivery.timeout.ms", "300000");
        properties.put("transaction.timeout.ms", "600000");
        properties.put("key.serializer", StringSerializer.class.getName());
        properties.put("value.serializer", StringSerializer.class.getName());
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
            producer.initTransactions();
            for (int number = 0; !isEnded.get(); number++) {
                producer.beginTransaction();
                for (int partition = 0; partition < 2; partition++) {
                    producer.send(new ProducerRecord<>(arguments[2], partition, null, arguments[1] + number));
                }
                producer.commitTransaction();
                System.out.println(number);
                Thread.sleep(20);
            }
        }
        System.out.println("done");
    }
}
