/* ask.c - asks a model one question: cc ask.c $(pkg-config --cflags --libs temper) && ./a.out MODEL
 * "QUESTION" */
#include <stdio.h>
#include <temper/temper.h>

static bool show(const char *text, size_t length, void *user)
{
    return fwrite(text, 1, length, user) == length && fflush(user) == 0;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s MODEL QUESTION\n", argv[0]);
        return 2;
    }
    temper_error err = {0};
    temper_engine *engine = NULL;
    temper_session *session = NULL;
    temper_tokens prompt = {0};
    temper_result result;
    const temper_message question = {"user", argv[2]};
    if (temper_engine_open(&(temper_engine_desc){.model = argv[1]}, &engine, &err) == TEMPER_OK &&
        temper_session_open(engine, NULL, &session, &err) == TEMPER_OK &&
        temper_chat(engine, &question, 1, &prompt, &err) == TEMPER_OK)
        temper_session_generate(
            session, &(temper_request){.prompt = prompt, .on_text = show, .user = stdout}, &result,
            &err);
    fprintf(stderr, "%s\n", err.text);
    temper_free(prompt.ids);
    temper_session_close(session);
    temper_engine_close(engine);
    return err.status == TEMPER_OK ? 0 : 1;
}
