/*
 * kernels_tune.c - `temper kernels tune`: for the products of a model, which row of the table is
 * fastest on this device. What is found is kept in the user's folder and used from then on.
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "check/choice.h"
#include "kernels.h"

enum { MOST_PRODUCTS = 32, MOST_ROWS = 4096 };

static struct tune_options {
    const char *shape, *type;
    count_list rows;
    bool json;
} opt = {.type = "Q4_0", .rows = {{1, 2, 4, 8, 16, 32, 64, 128, 256, 512}, 10}};

static const option tune_options[] = {
    {"--shape", OPTION_TEXT, &opt.shape, "NAME", "a known shape instead of a model: llama-1b, ..."},
    {"--type", OPTION_TEXT, &opt.type, "TYPE", "its weights: Q4_0 (default), Q8_0, F16, F32"},
    {"--rows", OPTION_COUNTS, &opt.rows, "M,M,...",
     "rows that are measured, each a power of two (default 1 to 512)"},
    {"--json", OPTION_FLAG, &opt.json, NULL, "one JSON object a row that was measured"},
    {NULL, OPTION_FLAG, NULL, NULL, NULL},
};

static const option *const tables[] = {tune_options, cli_device_options, NULL};

/* ---- the products of a model ----------------------------------------------------------------- */

typedef struct product_list {
    temper_product items[MOST_PRODUCTS];
    uint32_t count;
} product_list;

static temper_status read_products(const char *path, product_list *out, temper_error *err)
{
    temper_engine *engine = NULL;
    temper_device *device = NULL;
    temper_status status;
    if (path != NULL) {
        status = cli_open_engine(path, 0, &engine, err);
    } else if ((status = cli_open_device(&device, err)) == TEMPER_OK) {
        const temper_engine_desc desc = {
            .shape = opt.shape, .shape_type = opt.type, .device = device, .exact = true};
        status = temper_engine_open(&desc, &engine, err);
        temper_device_release(device);
    }
    if (status == TEMPER_OK)
        out->count = temper_engine_products(engine, out->items, MOST_PRODUCTS);
    if (out->count > MOST_PRODUCTS) /* a file with a different type in every layer */
        out->count = MOST_PRODUCTS;
    temper_engine_close(engine);
    return status;
}

/* ---- measuring ------------------------------------------------------------------------------- */

static void print_tuned(uint64_t rows, const temper_product *p, const check_tuned *tuned)
{
    char shape[96];
    snprintf(shape, sizeof shape, "%llu,%llu,%llu,%s", (unsigned long long)rows,
             (unsigned long long)p->n, (unsigned long long)p->k, p->format);
    if (!opt.json && tuned->count > 0)
        cli_print("%s\n", shape);
    for (uint32_t i = 0; i < tuned->count; i++) {
        const check_tuned_row *r = &tuned->rows[i];
        const bool chosen = i == 0 && r->right;
        const bool before = strcmp(r->row, tuned->before) == 0 && r->slices == tuned->before_slices;
        char row[48];
        const int length = snprintf(row, sizeof row, "%s", r->row);
        if (r->slices > 1 && length < (int)sizeof row)
            snprintf(row + length, sizeof row - (size_t)length, "/%u", (unsigned)r->slices);
        if (opt.json)
            cli_print_json(json_pack("{s:s, s:s, s:s, s:s, s:I, s:f, s:f, s:b, s:b, s:b, s:b}",
                                     "name", r->kernel, "op", "matmul", "shape", shape, "row",
                                     r->row, "slices", (json_int_t)r->slices, "us", r->us, "error",
                                     r->error, "ok", r->right, "steady", r->steady, "chosen",
                                     chosen, "before", before));
        else
            cli_print("  %s %-18s %10.2f us%s%s%s\n", chosen ? "->" : "  ", row, r->us,
                      r->steady ? "" : "~", before ? "  as before" : "",
                      r->right ? "" : "  WRONG: not used");
    }
    cli_write("", 0);
}

static temper_status tune_product(check_tuner *tuner, const temper_product *p, uint32_t *wrong,
                                  temper_error *err)
{
    temper_status status = TEMPER_OK;
    for (size_t i = 0; status == TEMPER_OK && i < opt.rows.count && !cli_interrupted(); i++) {
        check_tuned tuned;
        const uint64_t rows = opt.rows.items[i];
        if (rows > p->most_rows)
            continue;
        cli_progress("measuring %llu rows by %llu x %llu", (unsigned long long)rows,
                     (unsigned long long)p->n, (unsigned long long)p->k);
        status = check_tuner_measure(tuner, rows, p->n, p->k, p->format, &tuned, err);
        cli_progress_clear();
        if (status == TEMPER_OK)
            print_tuned(rows, p, &tuned);
        for (uint32_t k = 0; status == TEMPER_OK && k < tuned.count; k++)
            *wrong += tuned.rows[k].right ? 0 : 1;
    }
    return status;
}

static temper_status keep(const check_tuner *tuner, temper_error *err)
{
    strbuf path = {0}, shown = {0};
    if (check_tuner_count(tuner) == 0) {
        fprintf(stderr, "no product has more than one row that this device may use: there is "
                        "nothing to choose\n");
        return TEMPER_OK;
    }
    const temper_status status = check_tuner_write(tuner, &path, err);
    cli_one_line(&shown, strbuf_text(&path), path.length);
    if (status == TEMPER_OK)
        fprintf(stderr, "%u choices are kept in %s\n", check_tuner_count(tuner),
                strbuf_text(&shown));
    strbuf_free(&path);
    strbuf_free(&shown);
    return status;
}

static temper_status tune(gpu_device *device, const char *folder, const product_list *products,
                          uint32_t *wrong, temper_error *err)
{
    check_tuner *tuner = NULL;
    temper_status status = check_tuner_open(device, folder, cli_device.exact, &tuner, err);
    for (uint32_t i = 0; status == TEMPER_OK && i < products->count && !cli_interrupted(); i++)
        status = tune_product(tuner, &products->items[i], wrong, err);
    if (status == TEMPER_OK && !cli_interrupted())
        status = keep(tuner, err);
    check_tuner_close(tuner);
    return status;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int check_usage(const char *given)
{
    if (given != NULL && opt.shape != NULL)
        return cli_usage_error("kernels tune", "a model and --shape: use one of them");
    for (size_t i = 0; i < opt.rows.count; i++)
        if (opt.rows.items[i] < 1 || opt.rows.items[i] > MOST_ROWS ||
            (opt.rows.items[i] & (opt.rows.items[i] - 1)) != 0)
            return cli_usage_error("kernels tune",
                                   "--rows has %llu; it must be a power of two, 1 to %d: a choice "
                                   "serves all rows down to the next one",
                                   (unsigned long long)opt.rows.items[i], (int)MOST_ROWS);
    return 0;
}

int kernels_tune(int argc, char **argv)
{
    const char *given = NULL;
    int code;
    if (!kernels_options("kernels tune", "temper kernels tune [MODEL | --shape NAME] [OPTIONS]",
                         "Measures which row of matmul's table is fastest on this device for each "
                         "product of a model, and keeps the order in the user's folder; from then "
                         "on every command on this device uses it. A row that computes anything "
                         "else than the last row of the table is not used.",
                         argc, argv, tables, &given, 1, &code))
        return code;
    if ((code = check_usage(given)) != 0)
        return code;
    if (cli_lossy() != TEMPER_LOSSY_NONE)
        return cli_usage_error("kernels tune", "--lossy: its rows have no rivals to be timed "
                                               "against, they are used where they are asked for");
    const char *folder = cli_tune_folder();
    const char *path = opt.shape == NULL ? cli_model_path(given) : NULL;
    if (path == NULL && opt.shape == NULL)
        return EXIT_FAILED;
    if (folder == NULL)
        return cli_usage_error("kernels tune", "there is no folder to keep the choices in: set "
                                               "TEMPER_TUNE or HOME");
    temper_error err = {0};
    gpu_device *device = NULL;
    product_list products = {.count = 0};
    uint32_t wrong = 0;
    const temper_device_desc desc = cli_device_desc(false);
    temper_status status = read_products(path, &products, &err);
    if (status == TEMPER_OK)
        status = check_open(&desc, false, &device, &err);
    if (status == TEMPER_OK) {
        fprintf(stderr, "on %s\n", gpu_device_adapter(device)->name);
        status = tune(device, folder, &products, &wrong, &err);
    }
    gpu_device_release(device);
    if (status != TEMPER_OK)
        return cli_fail("kernels tune", &err);
    if (cli_interrupted())
        return EXIT_INTERRUPTED;
    code = cli_finish("kernels tune");
    return code != 0 ? code : wrong > 0 ? EXIT_FAILED : 0;
}
