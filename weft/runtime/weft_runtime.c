/* The thread pool and scratch memory behind weft.h: one library, loaded once per process.

     weft_runtime_table(items, parallel, thread_num, num_threads, in_parallel)   // torch's OpenMP
     weft_runtime_table(items, NULL, NULL, NULL, NULL)                // the pool of weft_pool.c

   `items` is where in a tuple its items begin. Both tables come with weft_runtime_segment and
   weft_runtime_program, which Python calls programs by (weft_calls.c, which is read after this).

   With torch's OpenMP the threads are the ones torch itself runs on, so nothing is oversubscribed. */
#include <dlfcn.h>

#include "weft_pool.h"

/* ---- torch's OpenMP ---- */

static void (*omp_parallel)(void (*)(void *), void *, unsigned, unsigned);
static int (*omp_thread)(void);
static int (*omp_team)(void);
static int (*omp_nested)(void);

static void omp_share(void *shared) { weft_run_share(shared, omp_thread(), omp_team()); }

/* The team always has `threads` members, even when fewer chunks exist, as in torch: libgomp ends
   and recreates threads whenever the size of the team changes. */
static void parallel_omp(int threads, int64_t chunks, int64_t count, weft_body body, void *args) {
    weft_region r = {chunks, count, body, args};
    if (omp_nested())
        body(args, 0, count, 0);
    else
        omp_parallel(omp_share, &r, (unsigned)threads, 0);
}

/* ---- calls from Python ---- */

typedef struct object object;
typedef struct {
    const char *name;
    object *(*call)(object *self, object *const *args, ptrdiff_t count);
    int flags;
    const char *doc;
} method;

/* Of Python's stable interface what is used here: its headers need not be there. */
#define METH_FASTCALL 0x80
#define PYTHON(function) \
    function(void *, PyLong_AsVoidPtr, (object *)) \
    function(long, PyLong_AsLong, (object *)) \
    function(object *, PyLong_FromLong, (long)) \
    function(object *, PyTuple_New, (ptrdiff_t)) \
    function(ptrdiff_t, PyTuple_Size, (object *)) \
    function(int, PyTuple_SetItem, (object *, ptrdiff_t, object *)) \
    function(object *, PyTuple_GetSlice, (object *, ptrdiff_t, ptrdiff_t)) \
    function(object *, PyTuple_GetItem, (object *, ptrdiff_t)) \
    function(object *, PyList_GetItem, (object *, ptrdiff_t)) \
    function(int, PyList_SetItem, (object *, ptrdiff_t, object *)) \
    function(int, PyList_Append, (object *, object *)) \
    function(object *, PyDict_GetItem, (object *, object *)) \
    function(int, PyDict_SetItem, (object *, object *, object *)) \
    function(char *, PyBytes_AsString, (object *)) \
    function(void *, PyType_GetSlot, (object *, int)) \
    function(object *, PyObject_GetItem, (object *, object *)) \
    function(object *, PyObject_GetAttr, (object *, object *)) \
    function(object *, PyObject_GenericGetAttr, (object *, object *)) \
    function(object *, PyObject_CallOneArg, (object *, object *)) \
    function(object *, PyObject_CallMethodObjArgs, (object *, object *, ...)) \
    function(object *, PyObject_Call, (object *, object *, object *)) \
    function(object *, PyObject_CallNoArgs, (object *)) \
    function(object *, PyObject_CallFunctionObjArgs, (object *, ...)) \
    function(int, PyObject_IsTrue, (object *)) \
    function(void, PyErr_Clear, (void)) \
    function(void, PyErr_Fetch, (object **, object **, object **)) \
    function(void, PyErr_Restore, (object *, object *, object *)) \
    function(void, PyErr_SetString, (object *, const char *)) \
    function(void, Py_IncRef, (object *)) \
    function(void, Py_DecRef, (object *)) \
    function(void *, PyEval_SaveThread, (void)) \
    function(void, PyEval_RestoreThread, (void *))
#define DECLARE(result, name, arguments) static result(*name) arguments;
#define FIND(result, name, arguments) name = (result(*) arguments)dlsym(python, #name);
PYTHON(DECLARE)
static object **type_error, *none;
static ptrdiff_t tuple_items; /* where in a tuple its items begin */

static object *const *items(object *tuple) {
    return (object *const *)((const char *)tuple + tuple_items);
}

typedef int (*segment)(void *addresses, object *const *inputs, object *const *fresh, int threads);

/* A segment, where `self` is the address of its C function: without Python's lock, and by a team of
   threads, unless it is so brief (no `threads`) that both take longer. */
static int run_segment(object *self, object *at, object *const *inputs, object *const *fresh,
                       object *threads) {
    segment run = (segment)PyLong_AsVoidPtr(self);
    void *addresses = PyLong_AsVoidPtr(at);
    if (!threads) return run(addresses, inputs, fresh, 1);
    int team = (int)PyLong_AsLong(threads);
    void *thread = PyEval_SaveThread();
    int fault = run(addresses, inputs, fresh, team);
    PyEval_RestoreThread(thread);
    return fault;
}

/* segment(at, inputs, fresh, threads): its fault, or 0. A call by ctypes takes 400 ns more. */
static object *call_segment(object *self, object *const *args, ptrdiff_t count) {
    (void)count;
    return PyLong_FromLong(run_segment(self, args[0], items(args[1]), items(args[2]), args[3]));
}

/* A tuple of new tensors: each of a function and its arguments. */
static object *new_tensors(object *rows) {
    ptrdiff_t count = PyTuple_Size(rows);
    object *made = PyTuple_New(count);
    for (ptrdiff_t i = 0; made && i < count; i++) {
        object *const *row = items(items(rows)[i]);
        object *tensor = PyObject_Call(row[0], row[1], 0);
        if (!tensor) {
            Py_DecRef(made);
            return 0;
        }
        PyTuple_SetItem(made, i, tensor);
    }
    return made;
}

/* The arguments of a builtin as a tuple. */
static object *as_tuple(object *const *inputs, ptrdiff_t count) {
    object *given = PyTuple_New(count);
    for (ptrdiff_t i = 0; given && i < count; i++) {
        Py_IncRef(inputs[i]);
        PyTuple_SetItem(given, i, inputs[i]);
    }
    return given;
}

/* What a builtin is made of: `general` is the Python text of the call. POP takes a frame out of
   FRAMES, of whose items the second is its address, and NEW makes one. THREADS tells how many there
   are, and is None where it is all too brief for that. A program that writes to
   its inputs at WRITTEN has two C functions for its segment, PLACE and RUN; APART tells whether no
   input overlaps another one, which is asked where some lie elsewhere than in the frame's last
   call, and WROTE tells torch of what is written. */
enum {
    GENERAL, COUNT, PROFILING, POP, FRAMES, NEW, THREADS, RUN, ERROR, OUTPUTS, PLACE, APART,
    WRITTEN, WROTE
};

/* Whether no input overlaps another; -1 for an error. */
static int lie_apart(object *const *own, object *frame, object *const *inputs, ptrdiff_t count,
                     object *fresh) {
    segment place = (segment)PyLong_AsVoidPtr(own[PLACE]);
    if (!place(PyLong_AsVoidPtr(items(frame)[1]), inputs, items(fresh), 1)) return 1;
    object *given = as_tuple(inputs, count);
    object *found = given ? PyObject_Call(own[APART], given, 0) : 0;
    int apart = found ? PyObject_IsTrue(found) : -1;
    if (given) Py_DecRef(given);
    if (found) Py_DecRef(found);
    return apart;
}

/* Tell torch which inputs are written; 0 for an error. */
static int tell_written(object *const *own, object *const *inputs) {
    ptrdiff_t count = PyTuple_Size(own[WRITTEN]);
    object *written = count ? PyTuple_New(count) : 0, *told = 0;
    for (ptrdiff_t i = 0; written && i < count; i++) {
        object *tensor = inputs[PyLong_AsLong(items(own[WRITTEN])[i])];
        Py_IncRef(tensor);
        PyTuple_SetItem(written, i, tensor);
    }
    if (written) told = PyObject_CallFunctionObjArgs(own[WROTE], written, (object *)0);
    if (written) Py_DecRef(written);
    if (told) Py_DecRef(told);
    return !count || told;
}

/* The Python text of the call. */
static object *call_general(object *const *own, object *const *inputs, ptrdiff_t count) {
    object *given = as_tuple(inputs, count);
    object *results = given ? PyObject_CallFunctionObjArgs(own[GENERAL], given, (object *)0) : 0;
    if (given) Py_DecRef(given);
    return results;
}

static void raise_fault(object *const *own, int fault) {
    object *number = PyLong_FromLong(fault);
    object *none = number ? PyObject_CallFunctionObjArgs(own[ERROR], number, (object *)0) : 0;
    if (number) Py_DecRef(number);
    if (none) Py_DecRef(none);
}

/* program(*inputs), of one segment whose new tensors are all outputs. */
static object *call_program(object *self, object *const *inputs, ptrdiff_t count) {
    object *const *own = items(self);
    if (count < PyLong_AsLong(own[COUNT])) {
        PyErr_SetString(*type_error, "a program is called with fewer tensors than it reads");
        return 0;
    }
    object *profiling = PyObject_CallNoArgs(own[PROFILING]);
    int watched = profiling ? PyObject_IsTrue(profiling) : -1;
    if (profiling) Py_DecRef(profiling);
    if (watched) return watched < 0 ? 0 : call_general(own, inputs, count);
    object *frame = PyObject_CallNoArgs(own[POP]);
    if (!frame) { /* all are in use */
        PyErr_Clear();
        frame = PyObject_CallNoArgs(own[NEW]);
        if (!frame) return 0;
    }
    object *results = new_tensors(own[OUTPUTS]);
    int brief = own[THREADS] == none, writes = PyTuple_Size(self) > PLACE, fault = 0;
    object *threads = results && !brief ? PyObject_CallNoArgs(own[THREADS]) : 0;
    int ready = results && (threads || brief);
    int apart = ready && writes ? lie_apart(own, frame, inputs, count, results) : 1;
    int done = ready && apart == 1;
    if (done) {
        fault = run_segment(own[RUN], items(frame)[1], inputs, items(results), threads);
        done = !fault && (!writes || tell_written(own, inputs));
    }
    if (apart == 1 && PyList_Append(own[FRAMES], frame)) done = 0; /* else it has bad addresses */
    if (threads) Py_DecRef(threads);
    Py_DecRef(frame);
    if (done) return results;
    if (results) Py_DecRef(results);
    if (fault) raise_fault(own, fault);
    return apart ? 0 : call_general(own, inputs, count);
}

/* ---- the table programs are bound to ---- */

WEFT_EXPORT const weft_table *weft_runtime_table(ptrdiff_t items, void *parallel, void *thread_num,
                                                 void *num_threads, void *in_parallel) {
    static weft_table table;
    void *python = dlopen(0, RTLD_LAZY);
    PYTHON(FIND)
    type_error = dlsym(python, "PyExc_TypeError");
    none = dlsym(python, "_Py_NoneStruct");
    tuple_items = items;
    omp_parallel = (void (*)(void (*)(void *), void *, unsigned, unsigned))parallel;
    omp_thread = (int (*)(void))thread_num;
    omp_team = (int (*)(void))num_threads;
    omp_nested = (int (*)(void))in_parallel;
    table = *weft_pool_table();
    if (parallel) table.parallel = parallel_omp;
    return &table;
}
