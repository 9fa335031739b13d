/* Attributes in slots of Python classes: found once by their names, then read and written without a look-up. */

#ifndef HOLDFAST_SLOTS_H
#define HOLDFAST_SLOTS_H

#include <Python.h>

typedef struct {
    PyObject *descriptor;
    descrgetfunc get;
    descrsetfunc set;
} Slot;

/* The value of an object's slot. Its class must be the one in which the slot was found. */
static inline PyObject *
get(const Slot *slot, PyObject *object)
{
    return slot->get(slot->descriptor, object, (PyObject *)Py_TYPE(object));
}

static inline int
set(const Slot *slot, PyObject *object, PyObject *value)
{
    return slot->set(slot->descriptor, object, value);
}

/* Sets an attribute to a new reference, which is NULL after an error. */
static inline int
set_new(const Slot *slot, PyObject *object, PyObject *value)
{
    if (value == NULL) {
        return -1;
    }
    int done = set(slot, object, value);
    Py_DECREF(value);
    return done;
}

/* Fills `slot` for the attribute of a class. Returns 0, or -1 after an error. */
static inline int
find_slot(PyTypeObject *type, const char *name, Slot *slot)
{
    slot->descriptor = PyObject_GetAttrString((PyObject *)type, name);
    if (slot->descriptor == NULL) {
        return -1;
    }
    slot->get = (descrgetfunc)PyType_GetSlot(Py_TYPE(slot->descriptor), Py_tp_descr_get);
    slot->set = (descrsetfunc)PyType_GetSlot(Py_TYPE(slot->descriptor), Py_tp_descr_set);
    if (slot->get == NULL || slot->set == NULL) {
        PyErr_Format(PyExc_TypeError, "%s is not in a slot of its class", name);
        return -1;
    }
    return 0;
}

/* A new reference to an attribute of a module, which is imported if it was not. */
static inline PyObject *
attribute_of(const char *module_name, const char *name)
{
    PyObject *module = PyImport_ImportModule(module_name);
    if (module == NULL) {
        return NULL;
    }
    PyObject *value = PyObject_GetAttrString(module, name);
    Py_DECREF(module);
    return value;
}

#endif
