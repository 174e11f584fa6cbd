/* Stream an answer with sd-bus: cc -o stream_sdbus stream_sdbus.c $(pkg-config --cflags --libs libsystemd)
   STOKER_BUS_ADDRESS selects another bus than the system's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-bus.h>
#include <unistd.h>

static int open_bus(sd_bus **bus) {
    const char *address = getenv("STOKER_BUS_ADDRESS");
    int r;
    if (!address) return sd_bus_open_system(bus);
    if ((r = sd_bus_new(bus)) < 0 || (r = sd_bus_set_address(*bus, address)) < 0) return r;
    if ((r = sd_bus_set_bus_client(*bus, 1)) < 0 || (r = sd_bus_negotiate_fds(*bus, 1)) < 0) return r;
    return sd_bus_start(*bus);
}

int main(int argc, char **argv) {
    sd_bus *bus = NULL;
    sd_bus_error error = SD_BUS_ERROR_NULL;
    sd_bus_message *reply = NULL;
    const char *job;
    char text[4096];
    int stream, r = open_bus(&bus);
    ssize_t n;
    if (r >= 0) /* two a{sv}: the request with two keys, the options with one */
        r = sd_bus_call_method(bus, "org.stoker.Agent1", "/org/stoker/Agent1",
            "org.stoker.Inference1", "CreateJob", &error, &reply, "a{sv}a{sv}",
            2, "prompt", "s", argc > 1 ? argv[1] : "Why is the sky blue?", "max_tokens", "u", 200,
            1, "format", "s", "text");
    if (r < 0 || (r = sd_bus_message_read(reply, "oh", &job, &stream)) < 0) {
        fprintf(stderr, "no answer: %s\n", error.message ? error.message : strerror(-r));
        return 1;
    }
    while ((n = read(stream, text, sizeof text)) > 0) /* the message owns the descriptor */
        if (write(STDOUT_FILENO, text, n) < 0) break;
    sd_bus_message_unref(reply);
    sd_bus_flush_close_unref(bus);
    return 0;
}
