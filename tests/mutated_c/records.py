"""Bugs of what reads and writes the records of a batch: `_record_codec.c`, and the check of a leader,
`_record_validation.h`. Also of `_reading.h`, by which requests are read."""

from __future__ import annotations

from tests.mutated_c.bug import Bug

_CODEC = "protocol/_record_codec.c"
_CHECK = "protocol/_record_validation.h"
_CHECK_BUILT = ("protocol._record_validation",)
_CODEC_TESTS = "tests/protocol/test_record_codec.py"
_CHECK_TESTS = "tests/protocol/test_record_validation.py"
_READING_TESTS = (
    "tests/broker/replication/test_usual_append.py::test_both_answer_the_same_and_leave_the_same_logs",
    "tests/broker/replication/test_usual_append.py::test_a_request_that_is_cut_off_is_left_to_python",
)

CHECKS = tuple(
    Bug(name, what, _CHECK, text, replacement, (_CHECK_TESTS,), _CHECK_BUILT)
    for name, what, text, replacement in (
        (
            "record-offset-delta-unchecked",
            "records are appended whose offsets nobody can find",
            "if (number != (uint64_t)index << 1) {",
            "if (0) {",
        ),
        (
            "record-bytes-behind-the-last",
            "bytes that belong to no record are appended",
            "if (fault == NULL && at != end) {",
            "if (0) {",
        ),
        (
            "record-bytes-behind-its-headers",
            "a record is appended that is longer than what it holds",
            "if (at != record_end) {",
            "if (0) {",
        ),
        (
            "record-ends-beyond-the-batch",
            "the walk reads memory behind the batch",
            "if ((ptrdiff_t)(number >> 1) > end - at) {",
            "if (0) {",
        ),
        (
            "record-key-ends-beyond-the-record",
            "a key is taken from the records behind its own",
            "if ((ptrdiff_t)(number >> 1) > end - next) {",
            "if (0) {",
        ),
        (
            "record-length-negative",
            "a record of negative length is appended",
            "fault = \"its length is negative\";\n            break;",
            "",
        ),
        (
            "record-header-without-key",
            "a header without key is appended, at which consumers stop",
            "if (key == NULL) {",
            "if (0) {",
        ),
        (
            "record-header-key-of-any-bytes",
            "a header whose key is no text is appended, at which consumers stop",
            "if (!is_utf8(key, next)) {",
            "if (key != NULL && 0) {",
        ),
        (
            "record-header-key-of-surrogates",
            "a header whose key has half of a character is appended",
            "first == 0xED ? 0x9F : ",
            "",
        ),
        (
            "record-timestamp-wraps",
            "a timestamp beyond 64 bits becomes one of the past",
            "if (__builtin_add_overflow(base_timestamp, signed_number(delta), &timestamp)) {",
            "timestamp = (int64_t)((uint64_t)base_timestamp + (uint64_t)signed_number(delta));\n"
            "        if (0) {",
        ),
        (
            "record-number-of-65-bits",
            "a varint of more than 64 bits is taken for another number",
            "if (shift == 63 && byte > 1) {",
            "if (0) {",
        ),
        (
            "record-key-length-below-null",
            "a key of length -2 is taken for none",
            "return number == 1 ? NULL : negative;",
            "return NULL;",
        ),
        (
            "record-oldest-forgotten",
            "the oldest timestamp of a batch is that of its last record",
            "if (timestamp < least && timestamp >= 0) {",
            "if (timestamp >= 0) {",
        ),
        (
            "record-without-key-uncounted",
            "records without key are appended to a compacted topic",
            "        if (!has_key) {",
            "        if (0 * has_key) {",
        ),
    )
)  # fmt: skip

CODEC = tuple(
    Bug(name, what, _CODEC, text, replacement, (_CODEC_TESTS,))
    for name, what, text, replacement in (
        (
            "codec-offset-delta-unchecked",
            "a consumer takes records for others that were left out",
            "else if (number != (uint64_t)index << 1) {",
            "else if (0) {",
        ),
        (
            "codec-offsets-go-back",
            "a consumer gets offsets that do not rise",
            "if (delta <= last_delta || delta > last_offset_delta) {",
            "if (delta > last_offset_delta) {",
        ),
        (
            "codec-offset-beyond-the-batch",
            "a consumer gets an offset of the next batch",
            "if (delta <= last_delta || delta > last_offset_delta) {",
            "if (delta <= last_delta) {",
        ),
        (
            "codec-span-beyond-the-records",
            "a value is read from the memory behind the records",
            "if (number > (uint64_t)(cursor->end - cursor->at)) {",
            "if (0) {",
        ),
        (
            "codec-length-of-a-record-unchecked",
            "a record that is longer than what it holds is taken",
            "if (taken != length) {",
            "if (0) {",
        ),
        (
            "codec-bytes-behind-the-last",
            "bytes behind the last record are passed over",
            "if (cursor->at != cursor->end) {",
            "if (0) {",
        ),
        (
            "codec-timestamp-of-the-one-before",
            "a record has the timestamp of the record before it",
            "if (timestamp == NULL || number != last_timestamp) {",
            "if (timestamp == NULL) {",
        ),
        (
            "codec-headers-of-another",
            "headers move to the records before them",
            "if (columns->headers != NULL && append(columns->headers, PyTuple_New(0)) < 0) {",
            "if (0) {",
        ),
        (
            "codec-null-becomes-empty",
            "a tombstone is written as an empty value",
            "        return write_varint(at, 1);",
            "        return write_varint(at, 0);",
        ),
        (
            "codec-more-records-than-bytes",
            "a batch of few bytes has the consumer count to two thousand million",
            "if (record_count > size / MIN_RECORD_SIZE) {",
            "if (0) {",
        ),
        (
            "codec-keeps-timestamps",
            "each batch keeps its last timestamp",
            "    Py_XDECREF(timestamp);\n    if (cursor->at != cursor->end) {",
            "    if (cursor->at != cursor->end) {",
        ),
        (
            "codec-keeps-rows",
            "each row keeps its key for ever",
            "Py_NewRef(LIST_ITEM(columns->keys, index)),",
            "Py_NewRef(Py_NewRef(LIST_ITEM(columns->keys, index))),",
        ),
    )
)  # fmt: skip

READING = (
    Bug(
        "reading-beyond-the-frame",
        "a length that a peer wrote leads out of the frame",
        "protocol/_reading.h",
        "if (size < 0 || size > cursor->end - cursor->at) {",
        "if (size < 0) {",
        _READING_TESTS,
        ("broker.replication._usual_append",),
    ),
    Bug(
        "reading-tagged-fields-unseen",
        "a condition in a tagged field is passed over, and its batch appended",
        "protocol/_reading.h",
        "return cursor->is_flexible ? expect(cursor, 1, 0) : 0;",
        "return cursor->is_flexible ? (take(cursor, 1) == NULL ? -1 : 0) : 0;",
        (
            "tests/broker/replication/test_several_appends.py"
            "::test_what_is_unusual_anywhere_leaves_everything_as_it_was",
        ),
        ("broker.replication._usual_append",),
        "_expect",
    ),
)

BUGS = (*CHECKS, *CODEC, *READING)
