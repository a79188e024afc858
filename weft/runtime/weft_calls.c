/* Known calls of compiled functions, from the call in Python to its results. It continues
   weft_runtime.c, and is read after it.

     weft_runtime_quicken(type, names)     // instances of this type are called by call_compiled

   An instance has a list, its entry: which known call is expected next, which one was last, the
   variables of a frame, that guards look at, the function, and keywords where a call has none. A
   known call is a list as well: frontend/python.py has it as Hot. */

enum { NEXT, LAST, FRAME, FUNCTION, NO_KEYWORDS };
enum { GUARDS, CHECK, CODE, THEN, PLAN, KEYS, PROGRAM };
/* Values of a plan: each is read from an earlier one, the first three are given. */
enum { ARGUMENTS, KEYWORDS, CALLED, FIRST_READ, MOST_VALUES = 128 };
enum { OBJECT, TUPLE_ITEM, ATTRIBUTE, ITEM };
enum { ALL_RESULTS = -1, NO_RESULT = -2 };
/* What the names are that weft_runtime_quicken is given. */
enum {
    ENTRY, COMPILATION, GENERAL_CALL, CACHE_ENTRY, ARGS_NAME, KWARGS_NAME, EMPTY_TUPLE, EMPTY_DICT,
    COMPILER, IS_COMPILING, FORWARD_AD, LEVEL, CALLBACK
};
static object *const *names;
typedef object *(*call_slot)(object *self, object *args, object *kwargs);
static call_slot call_in_python;

/* Whether Dynamo follows Python now, or torch traces it, or tangents are followed: calls then are
   no known ones. */
static int is_followed(void) {
    object *compiling = PyDict_GetItem(names[COMPILER], names[IS_COMPILING]);
    object *level = PyDict_GetItem(names[FORWARD_AD], names[LEVEL]);
    object *callback = PyObject_CallNoArgs(names[CALLBACK]);
    if (callback) Py_DecRef(callback);
    return callback != none || !compiling || !level || PyObject_IsTrue(compiling) ||
           PyLong_AsLong(level) >= 0;
}

/* Put an item into a list. */
static void put_item(object *list, ptrdiff_t at, object *item) {
    Py_IncRef(item);
    PyList_SetItem(list, at, item);
}

/* Set a frame's variables; it has no keywords where it is not in use. */
static int set_frame(object *frame, object *args, object *kwargs) {
    return PyDict_SetItem(frame, names[ARGS_NAME], args) ||
           (kwargs && PyDict_SetItem(frame, names[KWARGS_NAME], kwargs));
}

/* What the check of a known call says of the variables; -1 for an error, 0 where the frame is in
   use by a call that this one is within, or of another thread. */
static int passes(object *entry, object *hot, object *args, object *kwargs) {
    object *alive = PyObject_GenericGetAttr(PyList_GetItem(hot, GUARDS), names[CACHE_ENTRY]);
    if (!alive) return -1;
    Py_DecRef(alive);
    object *frame = PyList_GetItem(entry, FRAME), *passed = 0, *error[3];
    if (alive == none || frame == none) return 0;
    Py_IncRef(frame);
    put_item(entry, FRAME, none);
    if (!set_frame(frame, args, kwargs))
        passed = PyObject_CallOneArg(PyList_GetItem(hot, CHECK), frame);
    int is_so = passed ? PyObject_IsTrue(passed) : -1;
    if (is_so < 0) PyErr_Fetch(error, error + 1, error + 2);
    if (passed) Py_DecRef(passed);
    if (kwargs) kwargs = PyList_GetItem(entry, NO_KEYWORDS);
    if (set_frame(frame, names[EMPTY_TUPLE], kwargs)) PyErr_Clear();
    if (is_so < 0) PyErr_Restore(error[0], error[1], error[2]);
    put_item(entry, FRAME, frame);
    Py_DecRef(frame);
    return is_so;
}

/* A value of a plan: one of the keys, or what it names in another value. */
static object *read_value(const int *read, object *const *values, object *keys) {
    object *key = items(keys)[read[2]];
    if (read[0] == ATTRIBUTE) return PyObject_GetAttr(values[read[1]], key);
    if (read[0] == ITEM) return PyObject_GetItem(values[read[1]], key);
    if (read[0] == TUPLE_ITEM) key = PyTuple_GetItem(values[read[1]], read[2]);
    if (key) Py_IncRef(key);
    return key;
}

/* Of the results the one that a plan has, the first `count`, or a constant. */
static object *returned(object *results, int which, int count, object *keys) {
    if (!results || (which == ALL_RESULTS && PyTuple_Size(results) == count)) return results;
    object *found;
    if (which == ALL_RESULTS)
        found = PyTuple_GetSlice(results, 0, count);
    else
        Py_IncRef(found = which == NO_RESULT ? items(keys)[0] : items(results)[which]);
    Py_DecRef(results);
    return found;
}

/* What Dynamo's code does, as data: how many values are read, by (kind, of, key), how many of them
   are the program's inputs, and which, and what of its results is returned. */
static object *run_plan(object *entry, object *hot, object *args, object *kwargs) {
    const int *plan = (const int *)PyBytes_AsString(PyList_GetItem(hot, PLAN));
    object *keys = PyList_GetItem(hot, KEYS), *program = PyList_GetItem(hot, PROGRAM);
    object *values[MOST_VALUES], *inputs[MOST_VALUES], *results = 0;
    int reads = *plan++, count = FIRST_READ;
    values[ARGUMENTS] = args;
    values[KEYWORDS] = kwargs ? kwargs : PyList_GetItem(entry, NO_KEYWORDS);
    values[CALLED] = PyList_GetItem(entry, FUNCTION);
    for (; count < FIRST_READ + reads; count++, plan += 3) {
        values[count] = read_value(plan, values, keys);
        if (!values[count]) break;
    }
    if (count == FIRST_READ + reads) {
        int given = *plan++;
        for (int i = 0; i < given; i++) inputs[i] = values[*plan++];
        results = returned(call_program(program, inputs, given), plan[0], plan[1], keys);
    }
    while (count > FIRST_READ) Py_DecRef(values[--count]);
    return results;
}

/* The call of an instance: the known one that is expected, or one for Compilation.call. */
static object *call_compiled(object *self, object *args, object *kwargs) {
    if (is_followed()) return call_in_python(self, args, kwargs);
    object *entry = PyObject_GenericGetAttr(self, names[ENTRY]), *result = 0;
    if (!entry) return 0;
    object *hot = PyList_GetItem(entry, NEXT);
    Py_IncRef(hot);
    int passed = hot == none ? 0 : passes(entry, hot, args, kwargs);
    if (passed == 1) {
        object *then = PyList_GetItem(hot, THEN);
        if (PyList_GetItem(entry, LAST) != hot) put_item(entry, LAST, hot);
        if (then == none) then = hot;
        if (PyList_GetItem(entry, NEXT) != then) put_item(entry, NEXT, then);
        if (PyList_GetItem(hot, PLAN) == none)
            result = PyObject_Call(PyList_GetItem(hot, CODE), args, kwargs);
        else
            result = run_plan(entry, hot, args, kwargs);
    } else if (passed == 0) {
        object *own = PyObject_GenericGetAttr(self, names[COMPILATION]);
        object *given = kwargs ? kwargs : names[EMPTY_DICT];
        if (own)
            result = PyObject_CallMethodObjArgs(own, names[GENERAL_CALL], args, given, (object *)0);
        if (own) Py_DecRef(own);
    }
    Py_DecRef(hot);
    Py_DecRef(entry);
    return result;
}

/* Have instances of a type called by call_compiled, where its own __call__ in Python stays what
   Dynamo follows: 0 where the slot for that, among the first words of the type, is not found. */
WEFT_EXPORT int weft_runtime_quicken(object *type, ptrdiff_t words, object *given) {
    call_slot general = (call_slot)PyType_GetSlot(type, 50 /* Py_tp_call */), *found = 0;
    call_slot *slots = (call_slot *)(void *)type;
    for (ptrdiff_t i = 0; i < words; i++) {
        if (slots[i] != general) continue;
        if (found) return 0;
        found = slots + i;
    }
    if (!found || general == call_compiled) return 0;
    Py_IncRef(given);
    names = items(given);
    call_in_python = general;
    *found = call_compiled;
    return 1;
}

/* What PyCFunction_NewEx makes functions of. */
WEFT_EXPORT const method weft_runtime_segment = {"segment", call_segment, METH_FASTCALL, 0};
WEFT_EXPORT const method weft_runtime_program = {"program", call_program, METH_FASTCALL, 0};
