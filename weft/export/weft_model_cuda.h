/* Of a model for GPUs: weft_run takes memory of the CPU, copies it to the device and back, and
   runs on a stream of its own; `threads` means nothing. weft_open takes device 0. */

/* An instance on the device of that number, in its primary context, which the CUDA runtime and
   torch use as well. */
weft_model *weft_open_on(int device, const char *weights, char *error, size_t room);

/* Enqueue a run on a stream (a CUstream, a cudaStream_t, or NULL). `data` are addresses on the
   device, multiples of 16, whose memory stays until the stream has come so far; so is what it sets
   for outputs in memory of others. A program that may have a fault waits for its end. A stream
   that is recorded is refused. */
int weft_run_device(weft_model *model, int signature, const weft_array *inputs,
                    weft_array *outputs, void *stream, char *error, size_t room);

