/*
 * cli.h - what the commands of the program share: options, opening a model, and how results and
 * failures are told.
 *
 * Data goes to stdout, everything else to stderr; the exit code is 0 only on success, 2 for a wrong
 * call, 130 after Ctrl-C, 1 for any other failure.
 */
#ifndef TEMPER_CLI_H
#define TEMPER_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "temper/temper.h"

enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

/* ---- options (args.c) ----------------------------------------------------------------------- */

typedef enum option_kind {
    OPTION_FLAG,  /* bool *: no argument */
    OPTION_TEXT,  /* const char **: takes the next argument whatever it is */
    OPTION_COUNT, /* uint64_t *: a whole number, 0 or above; what is past 2^64 counts as 2^64 - 1 */
    OPTION_EXACT, /* uint64_t *: the same, but past 2^64 is refused */
    OPTION_NUMBER, /* double *: any number, NaN and infinities too: the command checks the range */
    OPTION_LIST,   /* text_list *: may be given again and again */
    OPTION_COUNTS, /* count_list *: whole numbers with commas between; replaces what was there */
    OPTION_ONE_OF, /* uint32_t *: which word of `argument` ("one|two") it is, from 1 on */
} option_kind;

enum { LIST_CAPACITY = 64 };

typedef struct text_list {
    const char *items[LIST_CAPACITY];
    size_t count;
} text_list;

enum { COUNTS_CAPACITY = 16 };

typedef struct count_list {
    uint64_t items[COUNTS_CAPACITY];
    size_t count;
} count_list;

typedef struct option {
    const char *name; /* "-n" or "--temp" */
    option_kind kind;
    void *value;
    const char *argument; /* how the help calls the argument; NULL for flags */
    const char *help;
} option;

/* A command's own options end with a row whose name is NULL. Positional arguments go to
 * `positional`, at most `most` of them. Returns 0, or EXIT_USAGE after a message that names the
 * argument. */
int args_parse(const char *command, int argc, char **argv, const option *const *tables,
               const char **positional, size_t most);

/* True when --help or -h is among the arguments before "-p"'s and its kind's values. */
bool args_want_help(int argc, char **argv, const option *const *tables);

/* Prints "usage: ..." and the options of the tables to stdout, no wider than the terminal. */
int args_help(const char *usage, const char *about, const option *const *tables);

/* ---- opening (open.c) ----------------------------------------------------------------------- */

/* Options every command with a device has. */
typedef struct device_options {
    const char *device;
    const char *without;
    text_list limits;
    bool robust;
    bool exact;
    uint32_t lossy; /* a temper_lossy */
} device_options;

extern device_options cli_device;
extern const option cli_device_options[];

/* --kv, which every command has that opens a session. */
typedef struct cache_options {
    const char *kv; /* "f32", "f16" or "q8" once cli_kv has accepted it */
} cache_options;

extern cache_options cli_cache;
extern const option cli_cache_options[];

/* The type that --kv names. Returns 0, or EXIT_USAGE after a message. */
int cli_kv(const char *command, temper_kv *out);

/* --widen, which every command has that reads weights. */
extern const option cli_widen_options[];

/* What --widen asks for, with a line on stderr for each type; NULL where it was not given. */
const temper_widen *cli_widen(void);

/* The model that a command was given, or the default model's path in the user's cache; NULL after a
 * message. */
const char *cli_model_path(const char *given);

/* The device that the options choose; `tuned`: with the kernels that `temper kernels tune` found
 * fastest on it. */
temper_device_desc cli_device_desc(bool tuned);

/* True when the command line says something of the device. */
bool cli_device_asked(void);

temper_status cli_open_device(temper_device **out, temper_error *err);

/* Where what was measured on devices is kept: $TEMPER_TUNE, else "tune" in the user's cache folder;
 * NULL where that is empty or there is none. */
const char *cli_tune_folder(void);

/* Opens the model on the chosen device, with a progress bar on a terminal. */
temper_status cli_open_engine(const char *path, uint32_t max_rows, temper_engine **out,
                              temper_error *err);
/* The same for another model, on the device of the first; lossy: instead of what --lossy says. */
temper_status cli_open_engine_beside(const temper_engine *first, const char *path,
                                     temper_lossy lossy, temper_engine **out, temper_error *err);
/* What --lossy says. */
temper_lossy cli_lossy(void);
temper_status cli_open_vocabulary(const char *path, temper_engine **out, temper_error *err);

/* The whole of a file, or of standard input ("-"), as it is; *out is freed by the caller. */
temper_status cli_read_file(const char *path, char **out, size_t *length, temper_error *err);

/* ---- telling (tell.c) ----------------------------------------------------------------------- */

/* Prints "temper COMMAND: text" to stderr and returns the exit code for the status. */
int cli_fail(const char *command, const temper_error *err);

/* A wrong call: the text on one line, and where help is; returns EXIT_USAGE. The command may be "".
 */
int cli_usage_error(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* True when stderr is a terminal that can do more than print. */
bool cli_draws(void);

/* Draws a line of progress over the last one; nothing where stderr is no such terminal, or too soon
 * after the last. Clear it before anything else is written. */
void cli_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cli_progress_clear(void);

/* Appends text so that it stays on one line: control characters escaped, a newline as \n. */
void cli_one_line(strbuf *out, const char *text, size_t length);

/* Writes to stdout; false once stdout is full or closed. */
bool cli_write(const char *text, size_t length);
/* The same for a model's words: on a terminal, control characters are escaped, so that they cannot
 * command it. */
bool cli_write_answer(const char *text, size_t length);
bool cli_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One JSON value on a line of its own; takes the reference. */
bool cli_print_json(json_t *value);

/* A JSON string of bytes: what is no UTF-8 becomes U+FFFD. */
json_t *cli_json_text(const char *text, size_t length);

/* From now on the library's warnings go to stderr. */
void cli_tell_warnings(void);

/* The last word of a command: flushes stdout and returns 0, or EXIT_FAILED after a message when it
 * could not be written. */
int cli_finish(const char *command);

/* True once a write to stdout has failed: going on computing is of no use. */
bool cli_output_failed(void);

/* "1.5 GiB" into a static buffer of the caller. */
const char *cli_bytes(uint64_t bytes, char text[32]);

/* Ctrl-C sets a flag; when nothing has ended two seconds later the program exits with 130 by
 * itself. main asks for it before any command. */
void cli_catch_interrupt(void);
/* From now on there is something to lose (a chat): the program ends by itself only at a second
 * Ctrl-C, and then leaves the terminal as it is now. */
void cli_be_patient(void);
bool cli_interrupted(void);
/* A file that can be read from once Ctrl-C was pressed: to poll with others; -1 where there is
 * none. Made by the first call: what was pressed before shows in cli_interrupted alone. */
int cli_interrupt_file(void);
/* Empties that file; cli_interrupted stays as it is. */
void cli_drain_interrupts(void);
void cli_forget_interrupt(void);

/* ---- commands ------------------------------------------------------------------------------- */

int command_run(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_eval(int argc, char **argv);
int command_tokenize(int argc, char **argv);
int command_inspect(int argc, char **argv);
int command_convert(int argc, char **argv);
int command_quantize(int argc, char **argv);
int command_kernels(int argc, char **argv);
int command_doctor(int argc, char **argv);

#endif
