"""Requests that cost a broker the most, generated for every API and version, against a real broker process.

`generator` builds them from the declared messages, `probe` measures the broker's turns from inside,
`campaign` sends all of them and writes the report (scripts/hostile-requests.sh).
"""
