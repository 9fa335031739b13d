"""A bank on transactions: transfers between accounts, and auditors of committed records, on real brokers.

Pure: `books` has what an auditor knows at any time, `ledger` what the tellers have tried and the judge of the
end. `tills` says what a client library has to do, `librdkafka` and `own_clients` do it. `tellers` and
`auditors` are threads, `bank` employs them. `drill` has a cluster whose coordinator of transactions is killed
again and again (`scripts/bank-drill.sh`), and `bugs` which known bugs the bank has to find in real brokers.
"""
