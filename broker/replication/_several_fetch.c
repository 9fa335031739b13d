/* The usual fetch of several partitions, compiled: without a session, or in one that goes on. What the decoder, the
 * handler, Fetches.begin, read_all, SessionFetch and the encoder do for it in Python is done here in the same order; tests
 * compare the two. Where this file was not compiled, Python is used.
 *
 * Nothing is changed before all partitions have been read. Where one of them is unusual, or anything is wrong, `begin` has
 * done nothing and returns None: so errors, leader epochs, fences, damage and cold reads are handled in Python only.
 * Records are always found by Partition.read.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>

#include "_fetching.h"

/* Partitions that a request may name; more are left to Python. So are sessions with more partitions that may have news:
 * see session_fetch.READS_MAX. */
#define PARTITIONS_MAX 500
/* Bytes of records that one answer copies: see reads.copy_small_records. */
#define COPIED_BYTES_MAX (256 << 10)

/* A partition that is to be read, or has been. */
typedef struct {
    PyObject *member; /* in its session; NULL without one */
    PyObject *partition, *topic, *topic_id;
    int64_t offset, log_start_offset;
    int32_t index, leader_epoch, partition_max_bytes;
    char is_named; /* by the request */
    char is_read;  /* not if the answer has no room for it */
    Found found; /* whose read is a reference of this row */
} Row;

typedef struct {
    Row *rows;
    Py_ssize_t count, capacity;
} Rows;

/* A fetch: what it reads, and what it is answered by. */
typedef struct {
    PyObject_HEAD
    PyObject *topics, *name_of, *sessions, *clock_s;
    PyObject *session; /* NULL without one */
    PyObject *places;  /* while it waits without a session: the place of each partition among the rows, by its key */
    Rows rows;         /* in a session those that were stirred when it was read; none while it waits */
    long long max_bytes, min_bytes, max_wait_ms, isolation, total;
    int version, correlation_id, session_id;
    char is_busy;
} Reads;

/* What `begin` gets of the broker: borrowed. */
typedef struct {
    PyObject *topics, *name_of, *sessions, *clock_s, *may_read;
    long long max_bytes, partitions_max;
} Broker;

static PyTypeObject *reads_type;
static PyObject *encode_reads, *without_one_batch, *s_key;

/* Rows -------------------------------------------------------------------------------------------------------- */

static void
clear_row(Row *row)
{
    Py_CLEAR(row->member);
    Py_CLEAR(row->partition);
    Py_CLEAR(row->topic);
    Py_CLEAR(row->topic_id);
    Py_CLEAR(row->found.read);
    row->found.records = NULL;
}

static void
clear_rows(Rows *rows)
{
    Row *all = rows->rows;
    Py_ssize_t count = rows->count;
    memset(rows, 0, sizeof *rows);
    for (Py_ssize_t index = 0; index < count; index++) {
        clear_row(&all[index]);
    }
    PyMem_Free(all);
}

/* A new row, which is empty; NULL after an error. It moves when another one is added. */
static Row *
add_row(Rows *rows)
{
    if (rows->count == rows->capacity) {
        Py_ssize_t capacity = rows->capacity == 0 ? 8 : 2 * rows->capacity;
        Row *more = PyMem_Realloc(rows->rows, (size_t)capacity * sizeof *more);
        if (more == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        rows->rows = more;
        rows->capacity = capacity;
    }
    Row *row = &rows->rows[rows->count++];
    memset(row, 0, sizeof *row);
    return row;
}

/* The request ------------------------------------------------------------------------------------------------- */

/* Finds the partition of a row by its topic, which is found: as find_partition. */
static int
locate(Row *row, PyObject *topics, int version)
{
    Wanted wanted = {.version = version, .index = row->index};
    return find_partition(&wanted, topics, row->topic, row->topic_id, &row->partition);
}

/* The entry of a partition in the session, as its reader names it. */
static int
find_member(Row *row, PyObject *session, int version)
{
    PyObject *index = PyLong_FromLong(row->index), *partitions = get(&session_partitions, session), *named = NULL;
    if (index != NULL && partitions != NULL) {
        named = PyTuple_Pack(2, version < IDS_FROM ? row->topic : row->topic_id, index);
    }
    PyObject *member = named == NULL ? NULL : PyDict_GetItemWithError(partitions, named);
    row->member = Py_XNewRef(member);
    Py_XDECREF(index);
    Py_XDECREF(partitions);
    Py_XDECREF(named);
    return member != NULL ? Py_TYPE(member) == member_type : PyErr_Occurred() ? -1 : 0;
}

/* Whether an entry in a session is read as usual: without a fence, and watched. Its position fills the row, unless the
 * request names another one. */
static int
take_member(Row *row, int is_named)
{
    long long token, last_epoch = NO_EPOCH, offset, leader_epoch, max_bytes;
    PyObject *position = get(&member_wanted, row->member), *key = get(&member_key, row->member);
    PyObject *watchers = get(&member_watchers, row->member);
    int found = position == NULL || key == NULL || watchers == NULL ? -1 : 0;
    if (found == 0 && Py_TYPE(position) == wanted_type && PyTuple_Check(key) && PyTuple_Size(key) == 2
        && watchers != Py_None) {
        found = number_in(&wanted_owner_token, position, &token) < 0 ? -1 : token == NO_TOKEN;
        if (found == 1) {
            found = PyObject_RichCompareBool(PyTuple_GetItem(key, 0), row->topic, Py_EQ);
        }
        if (found == 1 && !is_named) {
            found = number_in(&wanted_last_fetched_epoch, position, &last_epoch) < 0
                            || number_in(&wanted_fetch_offset, position, &offset) < 0
                            || number_in(&wanted_current_leader_epoch, position, &leader_epoch) < 0
                            || number_in(&wanted_partition_max_bytes, position, &max_bytes) < 0
                        ? -1
                        : last_epoch == NO_EPOCH;
        }
        if (found == 1 && !is_named) {
            row->offset = offset;
            row->leader_epoch = (int32_t)leader_epoch;
            row->partition_max_bytes = (int32_t)max_bytes;
        }
    }
    Py_XDECREF(position);
    Py_XDECREF(key);
    Py_XDECREF(watchers);
    return found;
}

/* Reads the partitions of one topic, and finds each. */
static int
read_partitions(Wanted *wanted, const Broker *broker, PyObject *session, PyObject *topic, PyObject *topic_id, Rows *rows)
{
    int64_t count;
    if (read_length(&wanted->cursor, 4, &count) < 0 || count < 0 || count > PARTITIONS_MAX - rows->count) {
        return 0;
    }
    for (int64_t number = 0; number < count; number++) {
        Row *row = read_partition(wanted) < 0 ? NULL : add_row(rows);
        if (row == NULL) {
            return PyErr_Occurred() ? -1 : 0;
        }
        row->topic = Py_NewRef(topic);
        row->topic_id = Py_NewRef(topic_id);
        row->index = wanted->index;
        row->leader_epoch = wanted->leader_epoch;
        row->partition_max_bytes = wanted->partition_max_bytes;
        row->offset = wanted->offset;
        row->log_start_offset = wanted->log_start_offset;
        row->is_named = 1;
        int found = session == NULL ? 1 : find_member(row, session, wanted->version);
        if (found == 1 && session != NULL) {
            found = take_member(row, 1);
        }
        if (found == 1) {
            found = locate(row, broker->topics, wanted->version);
        }
        if (found != 1) {
            return found;
        }
    }
    return end_struct(&wanted->cursor) == 0;
}

/* Reads the topics of a request, of which it has one at least without a session. */
static int
read_all_topics(Wanted *wanted, const Broker *broker, PyObject *connection, PyObject *session, Rows *rows)
{
    int64_t topics;
    if (read_length(&wanted->cursor, 4, &topics) < 0 || topics < 0 || topics > PARTITIONS_MAX) {
        return 0;
    }
    int found = 1;
    for (int64_t number = 0; found == 1 && number < topics; number++) {
        PyObject *topic = NULL, *topic_id = NULL;
        found = read_topic(wanted) < 0 ? 0 : find_topic(wanted, broker->name_of, &topic, &topic_id);
        if (found == 1) {
            found = may_read(broker->may_read, connection, topic);
        }
        if (found == 1) {
            found = read_partitions(wanted, broker, session, topic, topic_id, rows);
        }
        Py_XDECREF(topic);
        Py_XDECREF(topic_id);
    }
    return found != 1 ? found : (session != NULL || rows->count > 0) && rows->count <= broker->partitions_max;
}

/* The partitions of a session that are read: those that may have news -------------------------------------------- */

/* Names the topic of a row as its reader does in the session. `before` is the row before, which is often of the same. */
static int
take_topic(Row *row, const Row *before, PyObject *name_of, int version)
{
    PyObject *named = get(&member_named, row->member);
    int found = named == NULL ? -1 : PyTuple_Check(named) && PyTuple_Size(named) == 2;
    if (found == 1) {
        PyObject *topic = PyTuple_GetItem(named, 0);
        row->index = (int32_t)PyLong_AsLong(PyTuple_GetItem(named, 1));
        if (version < IDS_FROM) {
            row->topic = Py_NewRef(topic);
            row->topic_id = Py_NewRef(no_id);
        }
        else {
            row->topic_id = Py_NewRef(topic);
            row->topic = before != NULL && before->topic_id == topic ? Py_NewRef(before->topic)
                                                                      : PyObject_CallFunctionObjArgs(name_of, topic, NULL);
        }
        found = row->topic == NULL || PyErr_Occurred() ? -1 : row->topic != Py_None;
    }
    Py_XDECREF(named);
    return found;
}

/* Adds the row of a stirred entry of the session: that which the request names, if it does. */
static int
add_stirred(Reads *reads, PyObject *member, Row *named)
{
    if (Py_TYPE(member) != member_type) {
        return 0;
    }
    Row *row = add_row(&reads->rows);
    if (row == NULL) {
        return -1;
    }
    if (named != NULL) {
        /* The references move from the one to the other. */
        *row = *named;
        memset(named, 0, sizeof *named);
        return 1;
    }
    row->member = Py_NewRef(member);
    int found = take_topic(row, reads->rows.count > 1 ? row - 1 : NULL, reads->name_of, reads->version);
    if (found == 1) {
        found = take_member(row, 0);
    }
    return found == 1 ? locate(row, reads->topics, reads->version) : found;
}

/* The entries that a fetch in a session reads, in their order, a new dict: those that are stirred, and those that the
 * request names, each with its place among `named`, else None. */
static PyObject *
stirred_with(PyObject *session, const Rows *named)
{
    PyObject *stirred = get(&session_stirred, session);
    PyObject *order = stirred == NULL || !PyDict_Check(stirred) ? NULL : PyDict_Copy(stirred);
    Py_XDECREF(stirred);
    for (Py_ssize_t index = 0; order != NULL && named != NULL && index < named->count; index++) {
        PyObject *place = PyLong_FromSsize_t(index); /* Of several positions of one partition the last one counts. */
        if (place == NULL || PyDict_SetItem(order, named->rows[index].member, place) < 0) {
            Py_CLEAR(order);
        }
        Py_XDECREF(place);
    }
    return order;
}

/* Fills the rows of a fetch in a session. Those in `named` are moved. */
static int
find_stirred(Reads *reads, Rows *named)
{
    PyObject *order = stirred_with(reads->session, named), *member, *place;
    int found = order == NULL ? -1 : PyDict_Size(order) <= PARTITIONS_MAX;
    Py_ssize_t position = 0;
    while (found == 1 && PyDict_Next(order, &position, &member, &place)) {
        found = add_stirred(reads, member, place == Py_None ? NULL : &named->rows[PyLong_AsSsize_t(place)]);
    }
    Py_XDECREF(order);
    return found;
}

/* Reading ----------------------------------------------------------------------------------------------------- */

/* As the call of Partition.read in read_all; NULL after an error. */
static PyObject *
read_records(const Row *row, long long max_bytes, int min_one_batch)
{
    PyObject *offset = PyLong_FromLongLong(row->offset), *size = PyLong_FromLongLong(max_bytes), *read = NULL;
    if (offset != NULL && size != NULL) {
        if (min_one_batch) {
            read = PyObject_CallMethodObjArgs(row->partition, s_read, offset, size, NULL);
        }
        else {
            PyObject *method = PyObject_GetAttr(row->partition, s_read);
            PyObject *arguments = method == NULL ? NULL : PyTuple_Pack(2, offset, size);
            read = arguments == NULL ? NULL : PyObject_Call(method, arguments, without_one_batch);
            Py_XDECREF(method);
            Py_XDECREF(arguments);
        }
    }
    Py_XDECREF(offset);
    Py_XDECREF(size);
    return read;
}

/* Reads the partition of a row within what is left of the bytes. */
static int
read_row(Row *row, long long isolation, long long left, int min_one_batch)
{
    Py_CLEAR(row->found.read);
    int is_usual = find_ends(row->partition, row->leader_epoch, isolation, &row->found);
    if (is_usual != 1 || is_at_end(&row->found, row->offset)) {
        return is_usual;
    }
    long long max_bytes = row->partition_max_bytes < left ? row->partition_max_bytes : left;
    return take_read(read_records(row, max_bytes, min_one_batch), &row->found);
}

/* Reads all rows: as read_all. */
static int
read_rows(Reads *reads)
{
    reads->total = 0;
    for (Py_ssize_t index = 0; index < reads->rows.count; index++) {
        Row *row = &reads->rows.rows[index];
        row->is_read = reads->session == NULL || reads->total < reads->max_bytes || reads->max_bytes <= 0;
        int is_usual = !row->is_read
                           ? 1
                           : read_row(row, reads->isolation, reads->max_bytes - reads->total, reads->total == 0);
        if (is_usual != 1) {
            return is_usual;
        }
        reads->total += row->is_read ? row->found.size : 0;
    }
    return 1;
}

/* The answer -------------------------------------------------------------------------------------------------- */

static Session
session_of(const Reads *reads, const Row *row)
{
    return (Session){reads->sessions, reads->clock_s, reads->session, row == NULL ? NULL : row->member};
}

/* Whether the answer has a row: those that were read, and in a session those with news. */
static int
is_answered(const Reads *reads, const Row *row)
{
    if (!row->is_read || reads->session == NULL) {
        return row->is_read;
    }
    Session session = session_of(reads, row);
    return is_news(&session, &row->found);
}

/* Reads a few records into memory: as copy_small_records. */
static int
copy_records(const Row *row, long long *left)
{
    if (row->found.records == NULL || row->found.size > SMALL_BYTES || *left <= 0) {
        return 0;
    }
    PyObject *done = PyObject_CallFunctionObjArgs(copy_small, row->found.records, small_bytes, NULL);
    Py_XDECREF(done);
    *left -= row->found.size;
    return done == NULL ? -1 : 0;
}

/* What encode_reads takes for a row. */
static PyObject *
answer_of_row(const Row *row)
{
    return Py_BuildValue("(OOiLLO)", row->topic, row->topic_id, (int)row->index, row->found.high_watermark,
                         row->found.log_start_offset, row->found.records == NULL ? Py_None : row->found.records);
}

/* The rows of the answer, as encode_reads takes them: a new list. */
static PyObject *
answered_rows(const Reads *reads)
{
    PyObject *rows = PyList_New(0);
    long long left = COPIED_BYTES_MAX;
    for (Py_ssize_t index = 0; rows != NULL && index < reads->rows.count; index++) {
        const Row *row = &reads->rows.rows[index];
        int is_in = is_answered(reads, row);
        PyObject *answer = is_in != 1 || copy_records(row, &left) < 0 ? NULL : answer_of_row(row);
        if (answer == NULL ? is_in != 0 : PyList_Append(rows, answer) < 0) {
            Py_CLEAR(rows);
        }
        Py_XDECREF(answer);
    }
    return rows;
}

/* The parts of the answer: a list, None if Python has to answer, NULL after an error. */
static PyObject *
encode_answer(const Reads *reads)
{
    PyObject *rows = answered_rows(reads), *version = PyLong_FromLong(reads->version), *parts = NULL;
    PyObject *correlation_id = PyLong_FromLong(reads->correlation_id), *session_id = PyLong_FromLong(reads->session_id);
    if (rows != NULL && version != NULL && correlation_id != NULL && session_id != NULL) {
        parts = PyObject_CallFunctionObjArgs(encode_reads, version, correlation_id, session_id, rows, NULL);
    }
    Py_XDECREF(rows);
    Py_XDECREF(version);
    Py_XDECREF(correlation_id);
    Py_XDECREF(session_id);
    return parts;
}

/* Counts what the answer has, and notes in the session what was sent. */
static int
note_answer(const Reads *reads)
{
    for (Py_ssize_t index = 0; index < reads->rows.count; index++) {
        const Row *row = &reads->rows.rows[index];
        Session session = session_of(reads, row);
        int is_in = is_answered(reads, row);
        if (is_in < 0 || (is_in && count_read(row->partition, row->found.size) < 0)
            || (row->is_read && reads->session != NULL && note_sent(&session, &row->found, row->offset) < 0)) {
            return -1;
        }
    }
    Session session = session_of(reads, NULL);
    return reads->session == NULL ? 0 : note_end(&session);
}

/* Waiting ----------------------------------------------------------------------------------------------------- */

static int
reads_traverse(Reads *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->topics);
    Py_VISIT(self->name_of);
    Py_VISIT(self->sessions);
    Py_VISIT(self->clock_s);
    Py_VISIT(self->session);
    Py_VISIT(self->places);
    for (Py_ssize_t index = 0; index < self->rows.count; index++) {
        Py_VISIT(self->rows.rows[index].member);
        Py_VISIT(self->rows.rows[index].partition);
        Py_VISIT(self->rows.rows[index].topic);
        Py_VISIT(self->rows.rows[index].topic_id);
        Py_VISIT(self->rows.rows[index].found.read);
    }
    return 0;
}

static int
reads_clear(Reads *self)
{
    Py_CLEAR(self->topics);
    Py_CLEAR(self->name_of);
    Py_CLEAR(self->sessions);
    Py_CLEAR(self->clock_s);
    Py_CLEAR(self->session);
    Py_CLEAR(self->places);
    clear_rows(&self->rows);
    return 0;
}

static void
reads_dealloc(Reads *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack((PyObject *)self);
    reads_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* The answer to what has been read, noted: a list, None if Python has to answer, NULL after an error. */
static PyObject *
answer(Reads *self)
{
    PyObject *parts = encode_answer(self);
    if (parts != NULL && parts != Py_None && note_answer(self) < 0) {
        Py_CLEAR(parts);
    }
    return parts;
}

/* Notes where the partitions are among the rows of a fetch without a session. */
static int
note_places(Reads *self)
{
    self->places = PyDict_New();
    int found = self->places == NULL ? -1 : 1;
    for (Py_ssize_t index = 0; found == 1 && index < self->rows.count; index++) {
        PyObject *key = PyObject_GetAttr(self->rows.rows[index].partition, s_key), *place = PyLong_FromSsize_t(index);
        if (key == NULL || place == NULL || PyDict_SetItem(self->places, key, place) < 0) {
            found = -1;
        }
        Py_XDECREF(key);
        Py_XDECREF(place);
    }
    /* A fetch that names a partition twice is for Python. */
    return found != 1 ? found : PyDict_Size(self->places) == self->rows.count;
}

/* Fills a row for the partition that was woken: only its position, its leader epoch and the partition itself. */
static int
find_woken(const Reads *self, PyObject *key, Row *row)
{
    memset(row, 0, sizeof *row);
    if (self->session != NULL) {
        if (Py_TYPE(key) != member_type) {
            return 0;
        }
        row->member = Py_NewRef(key);
        int found = take_topic(row, NULL, self->name_of, self->version);
        found = found == 1 ? take_member(row, 0) : found;
        return found == 1 ? locate(row, self->topics, self->version) : found;
    }
    PyObject *place = self->places == NULL ? NULL : PyDict_GetItemWithError(self->places, key);
    Py_ssize_t index = place == NULL ? -1 : PyLong_AsSsize_t(place);
    if (index < 0 || index >= self->rows.count) {
        return PyErr_Occurred() ? -1 : 0;
    }
    const Row *known = &self->rows.rows[index];
    row->offset = known->offset;
    row->leader_epoch = known->leader_epoch;
    row->partition = Py_NewRef(known->partition);
    return 1;
}

/* Whether the partition that was woken has something to be read: if not, no other is looked at. `is_worth` is set then. */
static int
look_at_woken(const Reads *self, PyObject *key, int *is_worth)
{
    Row row;
    Found found;
    int is_usual = find_woken(self, key, &row);
    if (is_usual == 1) {
        is_usual = find_ends(row.partition, row.leader_epoch, self->isolation, &found);
        *is_worth = is_usual == 1 && !is_at_end(&found, row.offset);
    }
    clear_row(&row);
    return is_usual;
}

/* Reads again all that the fetch may be answered by. */
static int
read_again(Reads *self)
{
    if (self->session != NULL) {
        int is_open = is_open_session(self->sessions, self->session, self->session_id);
        clear_rows(&self->rows);
        int found = is_open == 1 ? find_stirred(self, NULL) : is_open;
        if (found != 1) {
            return found;
        }
    }
    return read_rows(self);
}

/* Looks at the fetch, as the doc of `look` says. `key` is NULL if its wait ends. */
static PyObject *
look_again(Reads *self, PyObject *key)
{
    if (self->is_busy || self->topics == NULL) {
        Py_RETURN_NONE;
    }
    self->is_busy = 1;
    int is_worth = 1, is_usual = key == NULL ? 1 : look_at_woken(self, key, &is_worth);
    if (is_usual == 1 && is_worth) {
        is_usual = read_again(self);
        is_worth = key == NULL || self->total >= self->min_bytes;
    }
    PyObject *outcome = NULL;
    if (is_usual == 1) {
        outcome = is_worth ? answer(self) : Py_NewRef(Py_False);
        is_usual = outcome == NULL ? -1 : 1;
    }
    if (self->session != NULL) {
        clear_rows(&self->rows);
    }
    self->is_busy = 0;
    return is_usual != 1 && leave_to_python(is_usual) == 0 ? Py_NewRef(Py_None) : outcome;
}

PyDoc_STRVAR(look_doc, "look(key): see several_fetch.CompiledReads.look.");

static PyObject *
reads_look(Reads *self, PyObject *key)
{
    return look_again(self, key);
}

PyDoc_STRVAR(end_doc, "end(): see several_fetch.CompiledReads.end.");

static PyObject *
reads_end(Reads *self, PyObject *unused)
{
    return look_again(self, NULL);
}

PyDoc_STRVAR(rows_doc, "rows(): see several_fetch.CompiledReads.rows.");

static PyObject *
reads_rows(Reads *self, PyObject *unused)
{
    PyObject *rows = PyList_New(0);
    for (Py_ssize_t index = 0; rows != NULL && index < self->rows.count; index++) {
        const Row *row = &self->rows.rows[index];
        PyObject *one = Py_BuildValue("(OOiiLi)", row->topic, row->topic_id, (int)row->index, (int)row->leader_epoch,
                                      (long long)row->offset, (int)row->partition_max_bytes);
        if (one == NULL || PyList_Append(rows, one) < 0) {
            Py_CLEAR(rows);
        }
        Py_XDECREF(one);
    }
    return rows;
}

PyDoc_STRVAR(reads_from_doc, "reads_from(key): see waiting.Parked.reads_from.");

static PyObject *
reads_reads_from(Reads *self, PyObject *key)
{
    PyObject *place = self->places == NULL ? NULL : PyDict_GetItemWithError(self->places, key);
    Py_ssize_t index = place == NULL ? -1 : PyLong_AsSsize_t(place);
    if (index < 0 || index >= self->rows.count) {
        if (!PyErr_Occurred()) {
            PyErr_SetObject(PyExc_KeyError, key);
        }
        return NULL;
    }
    return PyLong_FromLongLong(self->rows.rows[index].offset);
}

static PyObject *
reads_keys(Reads *self, void *unused)
{
    if (self->places == NULL) {
        return PyTuple_New(0);
    }
    PyObject *keys = PyDict_Keys(self->places), *tuple = keys == NULL ? NULL : PyList_AsTuple(keys);
    Py_XDECREF(keys);
    return tuple;
}

static PyMethodDef reads_methods[] = {
    {"end", (PyCFunction)reads_end, METH_NOARGS, end_doc},
    {"look", (PyCFunction)reads_look, METH_O, look_doc},
    {"reads_from", (PyCFunction)reads_reads_from, METH_O, reads_from_doc},
    {"rows", (PyCFunction)reads_rows, METH_NOARGS, rows_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef reads_members[] = {
    {"session", T_OBJECT, offsetof(Reads, session), READONLY, NULL},
    {"isolation", T_LONGLONG, offsetof(Reads, isolation), READONLY, NULL},
    {"max_bytes", T_LONGLONG, offsetof(Reads, max_bytes), READONLY, NULL},
    {"max_wait_ms", T_LONGLONG, offsetof(Reads, max_wait_ms), READONLY, NULL},
    {"min_bytes", T_LONGLONG, offsetof(Reads, min_bytes), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef reads_getset[] = {
    {"keys", (getter)reads_keys, NULL, "What wakes the fetch: its partitions, if it has no session.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot reads_slots[] = {
    {Py_tp_doc, "What a usual fetch of several partitions reads, while it waits."},
    {Py_tp_traverse, reads_traverse},
    {Py_tp_clear, reads_clear},
    {Py_tp_dealloc, reads_dealloc},
    {Py_tp_methods, reads_methods},
    {Py_tp_members, reads_members},
    {Py_tp_getset, reads_getset},
    {0, NULL},
};

static PyType_Spec reads_spec = {
    .name = "holdfast_log.broker.replication._several_fetch.Reads",
    .basicsize = sizeof(Reads),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = reads_slots,
};

/* The call ---------------------------------------------------------------------------------------------------- */

static int
read_broker(PyObject *tuple, Broker *broker)
{
    if (PyTuple_Check(tuple) && PyTuple_Size(tuple) == 7) {
        broker->topics = PyTuple_GetItem(tuple, 0);
        broker->name_of = PyTuple_GetItem(tuple, 1);
        broker->sessions = PyTuple_GetItem(tuple, 2);
        broker->clock_s = PyTuple_GetItem(tuple, 3);
        broker->max_bytes = PyLong_AsLongLong(PyTuple_GetItem(tuple, 4));
        broker->partitions_max = PyLong_AsLongLong(PyTuple_GetItem(tuple, 5));
        broker->may_read = PyTuple_GetItem(tuple, 6);
        if (PyErr_Occurred()) {
            return -1;
        }
        if (PyDict_Check(broker->topics) && PyDict_Check(broker->sessions)) {
            return 0;
        }
    }
    PyErr_SetString(PyExc_TypeError, "begin takes the parts of a broker: see SeveralFetches");
    return -1;
}

/* A fetch with the limits of its request; NULL after an error. */
static Reads *
new_reads(const Broker *broker, const Wanted *wanted, int correlation_id)
{
    Reads *reads = (Reads *)PyType_GenericAlloc(reads_type, 0);
    if (reads == NULL) {
        return NULL;
    }
    reads->topics = Py_NewRef(broker->topics);
    reads->name_of = Py_NewRef(broker->name_of);
    reads->sessions = Py_NewRef(broker->sessions);
    reads->clock_s = Py_NewRef(broker->clock_s);
    reads->max_bytes = wanted->max_bytes < 0 ? 0 : wanted->max_bytes;
    reads->max_bytes = reads->max_bytes < broker->max_bytes ? reads->max_bytes : broker->max_bytes;
    reads->min_bytes = wanted->min_bytes < reads->max_bytes ? wanted->min_bytes : reads->max_bytes;
    reads->max_wait_ms = wanted->max_wait_ms;
    reads->isolation = wanted->isolation;
    reads->version = wanted->version;
    reads->correlation_id = correlation_id;
    reads->session_id = wanted->session_id;
    return reads;
}

/* Decodes the request, and finds its session and the partitions that it reads. */
static int
find_rows(Reads *reads, Wanted *wanted, const Broker *broker, PyObject *connection)
{
    Session session = session_of(reads, NULL);
    Rows named = {0};
    int found = 1;
    if (wanted->session_id != NO_SESSION) {
        found = find_session(wanted, connection, &session);
        reads->session = session.session; /* A new reference, or NULL. */
    }
    if (found == 1) {
        found = read_all_topics(wanted, broker, connection, reads->session, &named);
    }
    if (found == 1) {
        found = read_tail(wanted) == 0;
    }
    if (found == 1 && reads->session == NULL) {
        reads->rows = named;
        return 1;
    }
    if (found == 1) {
        found = find_stirred(reads, &named);
    }
    clear_rows(&named);
    for (Py_ssize_t index = 0; found == 1 && index < reads->rows.count; index++) {
        found = may_read(broker->may_read, connection, reads->rows.rows[index].topic);
    }
    return found;
}

/* Notes the request in its session, if it has one: as FetchSessions.use and FetchSessions.name. */
static int
use_session(const Reads *reads, const Wanted *wanted)
{
    Session session = session_of(reads, NULL);
    int failed = reads->session != NULL && note_request(wanted, &session) < 0;
    for (Py_ssize_t index = 0; !failed && reads->session != NULL && index < reads->rows.count; index++) {
        const Row *row = &reads->rows.rows[index];
        session.member = row->member;
        failed = row->is_named
              && note_position(&session, row->leader_epoch, row->offset, row->log_start_offset,
                               row->partition_max_bytes) < 0;
    }
    return failed ? -1 : 0;
}

/* The answer, or a new reference to the fetch if it waits, noted; None if the fetch is unusual; NULL after an error. A fetch
 * of a client that has rights does not wait here: they may end before there are records for it. */
static PyObject *
finish(Reads *reads, const Wanted *wanted, const Broker *broker)
{
    int must_wait = reads->max_wait_ms > 0 && reads->total < reads->min_bytes;
    if (must_wait) {
        int is_usual = broker->may_read == Py_None && reads->min_bytes <= 1;
        if (is_usual && reads->session == NULL) {
            is_usual = note_places(reads);
        }
        if (is_usual != 1) {
            return is_usual < 0 ? NULL : Py_NewRef(Py_None);
        }
    }
    PyObject *outcome = must_wait ? Py_NewRef((PyObject *)reads) : encode_answer(reads);
    if (outcome != NULL && outcome != Py_None
        && (use_session(reads, wanted) < 0 || (!must_wait && note_answer(reads) < 0))) {
        Py_CLEAR(outcome);
    }
    if (must_wait && reads->session != NULL) {
        clear_rows(&reads->rows);
    }
    return outcome;
}

PyDoc_STRVAR(begin_doc, "begin(broker, connection, frame, version, position, correlation_id)\n--\n\n"
                        "See several_fetch.SeveralFetches.begin.");

static PyObject *
begin(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Broker broker;
    Wanted wanted;
    Py_buffer frame;
    int correlation_id, is_usual = open_request(args, count, &frame, &wanted, &correlation_id);
    if (is_usual < 0) {
        return NULL;
    }
    if (read_broker(args[0], &broker) < 0) {
        PyBuffer_Release(&frame);
        return NULL;
    }
    PyObject *outcome = NULL;
    if (is_usual) {
        is_usual = read_head(&wanted) == 0;
    }
    Reads *reads = is_usual ? new_reads(&broker, &wanted, correlation_id) : NULL;
    if (is_usual) {
        is_usual = reads == NULL ? -1 : find_rows(reads, &wanted, &broker, args[1]);
    }
    PyBuffer_Release(&frame);
    if (is_usual == 1) {
        is_usual = read_rows(reads);
    }
    if (is_usual == 1) {
        outcome = finish(reads, &wanted, &broker);
        is_usual = outcome == NULL ? -1 : 1;
    }
    Py_XDECREF((PyObject *)reads);
    return is_usual != 1 && leave_to_python(is_usual) == 0 ? Py_NewRef(Py_None) : outcome;
}

/* The module -------------------------------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    {"begin", (PyCFunction)(void (*)(void))begin, METH_FASTCALL, begin_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "holdfast_log.broker.replication._several_fetch",
    .m_doc = "The usual fetch of several partitions, compiled. See holdfast_log.broker.replication.several_fetch.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__several_fetch(void)
{
    PyObject *made = PyModule_Create(&module);
    if (made == NULL) {
        return NULL;
    }
    s_key = PyUnicode_InternFromString("key");
    encode_reads = attribute_of("holdfast_log.protocol._fetch_codec", "encode_reads");
    without_one_batch = Py_BuildValue("{sO}", "min_one_batch", Py_False);
    reads_type = (PyTypeObject *)PyType_FromSpec(&reads_spec);
    if (s_key == NULL || encode_reads == NULL || without_one_batch == NULL || reads_type == NULL
        || prepare_fetching() < 0 || PyModule_AddObjectRef(made, "Reads", (PyObject *)reads_type) < 0) {
        Py_CLEAR(made);
    }
    return made;
}
