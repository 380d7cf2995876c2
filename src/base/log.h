/*
 * log.h - diagnostics. The library never prints: it calls the sink that the program set (none by
 * default).
 */
#ifndef TEMPER_BASE_LOG_H
#define TEMPER_BASE_LOG_H

typedef enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING } log_level;

typedef void (*log_sink)(log_level level, const char *text, void *user);

/* Not synchronised: set it before other threads use the library. text is cut at about 1000 bytes
 * and is valid during the call only. */
void log_set_sink(log_sink sink, void *user);

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void log_message(log_level level, const char *format, ...);

#endif
