"""The Spark sink: df.write and df.writeStream with format("holdfast").

Belongs here: options of the sink, conversion of rows, the decisions that make a write exactly-once, and the
writers that Spark calls. What reads topics into Spark belongs in `pipeline`, jobs that run by themselves in
`pipeline.jobs`.
"""
