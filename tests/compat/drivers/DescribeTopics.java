import java.util.List;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.TopicCollection;

/**
 * Driver of Kafka's own Java admin client: `java -cp … DescribeTopics.java bootstrap partitions-of-a-page topic…`. Prints one
 * line for each partition: topic, index, leader, replicas, in-sync replicas. Then the names of the resources with settings.
 */
public class DescribeTopics {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        DescribeTopicsOptions options =
                new DescribeTopicsOptions().partitionSizeLimitPerResponse(Integer.parseInt(arguments[1]));
        List<String> names = List.of(arguments).subList(2, arguments.length);
        try (Admin admin = Admin.create(properties)) {
            var described = admin.describeTopics(TopicCollection.ofTopicNames(names), options).allTopicNames().get();
            for (TopicDescription topic : new TreeMap<>(described).values()) {
                topic.partitions().forEach(each -> System.out.println(topic.name() + " " + each.partition() + " "
                        + each.leader().id() + " " + each.replicas().size() + " " + each.isr().size()));
            }
            new TreeMap<>(admin.listConfigResources().all().get().stream().collect(java.util.stream.Collectors.groupingBy(
                    each -> each.type().toString(), java.util.stream.Collectors.mapping(
                            each -> each.name(), java.util.stream.Collectors.toCollection(java.util.TreeSet::new)))))
                    .forEach((type, found) -> System.out.println(type + " " + found));
        }
    }
}
