/* Start the program of this name with the Python beside it, wherever the whole was unpacked.
 *
 *   TOP/bin/oncecron                          this
 *   TOP/lib/python/bin/python3 -IS TOP/lib/oncecron ARGUMENT...   what it becomes
 *
 * A script could not: the kernel wants the interpreter's whole path, and a shell leaves variables of its own.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fail(const char *what)
{
    fprintf(stderr, "oncecron: %s: %s\n", what, strerror(errno));
    return errno == ENOENT ? 127 : 126;
}

int main(int count, char **words)
{
    char self[PATH_MAX], python[PATH_MAX + 32], program[PATH_MAX + 32];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    char **command = calloc(count + 3, sizeof *command);
    if (length < 0 || !command)
        return fail("/proc/self/exe");
    self[length] = '\0';
    char *name = strrchr(self, '/');
    *name++ = '\0';
    *strrchr(self, '/') = '\0'; /* TOP */
    snprintf(python, sizeof python, "%s/lib/python/bin/python3", self);
    snprintf(program, sizeof program, "%s/lib/%s", self, name);
    command[0] = python;
    command[1] = "-IS";
    command[2] = program;
    for (int i = 1; i < count; i++)
        command[i + 2] = words[i];
    execv(python, command);
    return fail(python);
}
