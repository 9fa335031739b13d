import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Driver of Kafka's own Java producer: `java -cp … Transactions.java bootstrap transactional-id topic count`. Writes
 * that many transactions as fast as it can, each with a record to partitions 0 and 1 and an offset of group "g". Every third
 * one is aborted. Prints "done".
 */
public class Transactions {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("transactional.id", arguments[1]);
        properties.put("key.serializer", StringSerializer.class.getName());
        properties.put("value.serializer", StringSerializer.class.getName());
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
            producer.initTransactions();
            for (int number = 0; number < Integer.parseInt(arguments[3]); number++) {
                producer.beginTransaction();
                for (int partition = 0; partition < 2; partition++) {
                    producer.send(new ProducerRecord<>(arguments[2], partition, null, "value " + number));
                }
                producer.sendOffsetsToTransaction(
                        Map.of(new TopicPartition(arguments[2], 0), new OffsetAndMetadata(number)),
                        new ConsumerGroupMetadata("g"));
                if (number % 3 == 2) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        System.out.println("done");
    }
}
