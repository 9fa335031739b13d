import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * A Kafka Streams program: `java -cp … WordCount.java bootstrap input output directory`. It counts the words of one topic,
 * exactly once, and writes each new count of a word to another. It runs until it is killed.
 */
public class WordCount {
    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("application.id", "word-count");
        properties.put("state.dir", arguments[3]);
        properties.put("processing.guarantee", "exactly_once_v2");
        properties.put("replication.factor", "3");
        properties.put("commit.interval.ms", "100");
        properties.put("num.stream.threads", "1");
        // Each count is written, not only the last one of a commit: so that a lost or doubled one is seen.
        properties.put("statestore.cache.max.bytes", "0");
        properties.put("consumer.session.timeout.ms", "10000");
        properties.put("consumer.auto.offset.reset", "earliest");
        properties.put("topic.min.insync.replicas", "2");
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(arguments[1],
                        org.apache.kafka.streams.kstream.Consumed.with(Serdes.String(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                        .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
                .toStream()
                .mapValues(String::valueOf)
                .to(arguments[2], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        streams.setUncaughtExceptionHandler(error -> StreamThreadExceptionResponse.REPLACE_THREAD);
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        streams.start();
    }
}
