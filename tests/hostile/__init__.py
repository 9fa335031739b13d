"""Requests that cost a broker the most, generated for every API and version, against a real broker process.

`generator` builds them from the declared messages, `probe` measures the broker's turns from inside,
`neighbour` how long others wait, `campaign` sends all of them (scripts/hostile-requests.sh) and `report`
says what they cost.
"""
