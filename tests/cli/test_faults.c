/* tests/cli/test_faults.c: ranks that are killed, stopped, or learn nonsense: the run ends and
 * says which rank and why, and what was saved goes on. */
#include "core/json.h"
#include "core/text.h"
#include "tests/cli/place.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <ctype.h>
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PLAN PLACE_PLAN "--tensor-parallel 2 -o @/plan.json"
#define TRAIN                                                                                      \
    "train @/plan.json --data @/text.tokens --warmup-steps 0 --learning-rate 1e-3 "                \
    "--metrics @/run.jsonl "

static struct place new_place(void)
{
    struct place at = place_new();
    place_must(&at, PLAN);
    return at;
}

/* --- processes --- */

/* Name and parent of a process; false: gone. */
static bool look_up(pid_t process, char name[32], pid_t *parent)
{
    char path[40], line[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    FILE *file = fopen(path, "r");
    size_t length = file == NULL ? 0 : fread(line, 1, sizeof line - 1, file);
    if (file != NULL)
        fclose(file);
    line[length] = '\0';
    char *close = strrchr(line, ')');
    char *open = strchr(line, '(');
    int above = 0;
    if (open == NULL || close == NULL || sscanf(close, ") %*c %d", &above) != 1)
        return false;
    snprintf(name, 32, "%.*s", (int)(close - open - 1), open + 1);
    *parent = above;
    return true;
}

static bool is_below(pid_t process, pid_t root)
{
    char name[32];
    for (int i = 0; process > 1 && i < 16; i++) {
        if (process == root)
            return true;
        if (!look_up(process, name, &process))
            return false;
    }
    return false;
}

/* The youngest rank below `root`, or the oldest; 0: none. */
static pid_t rank_below(pid_t root, bool oldest)
{
    DIR *folder = opendir("/proc");
    pid_t found = 0, parent;
    char name[32];
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        pid_t process = (pid_t)strtol(entry->d_name, NULL, 10);
        if (isdigit((unsigned char)entry->d_name[0]) && look_up(process, name, &parent) &&
            mcp_starts_with(name, "mcpplan-exec") && is_below(process, root) &&
            (found == 0 || (process < found) == oldest))
            found = process;
    }
    if (folder != NULL)
        closedir(folder);
    return found;
}

/* Waits until `steps` steps are done, then sends the signal to a rank: now one, now another. */
static void strike(const struct place *at, pid_t train, int steps, int number)
{
    const char *mark = mcp_format(at->arena, "\"step\":%d,", steps);
    for (int i = 0; strstr(place_content(at, "run.jsonl"), mark) == NULL; i++) {
        cr_assert(i < 3000, "step %d did not come: %s", steps, place_content(at, "said"));
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    pid_t rank = rank_below(train, steps % 2 == 0);
    cr_assert(rank > 0);
    cr_assert(kill(rank, number) == 0);
}

static int lines_about(const char *text, const char *what)
{
    int count = 0;
    for (; (text = strstr(text, what)) != NULL; text += strlen(what))
        count++;
    return count;
}

/* NaN, unless the log has the step just once. */
static double loss_of(const char *log, int step)
{
    char mark[40];
    double loss = NAN;
    snprintf(mark, sizeof mark, "{\"step\":%d,\"loss\":", step);
    const char *line = strstr(log, mark);
    if (line != NULL && lines_about(log, mark) == 1)
        sscanf(line + strlen(mark), "%lf", &loss);
    return loss;
}

/* --- faults --- */

/* Killed, then killed again and again in the run that goes on by itself: every loss is that of a
 * run that nobody killed. */
Test(faults, a_killed_rank)
{
    struct place at = new_place();
    pid_t train =
        place_begin(&at, TRAIN "--steps 100000 --checkpoint-dir @/saved --checkpoint-every 5");
    strike(&at, train, 6, SIGKILL);
    cr_expect(eq(int, place_end_of(train), MCP_RUN_FAILURE));
    const char *said = place_content(&at, "said");
    cr_expect(lines_about(said, "was ended by signal 9 (Killed)") == 1, "%s", said);
    cr_expect(lines_about(said, "mcpplan: rank ") == 1, "%s", said);
    train =
        place_begin(&at, TRAIN "--steps 150 --checkpoint-dir @/saved --checkpoint-every 5 --resume "
                               "--max-restarts 4 --export @/model.safetensors");
    static const int kills[] = {13, 32, 61, 94};
    for (size_t i = 0; i < MCP_COUNT_OF(kills); i++)
        strike(&at, train, kills[i], SIGKILL);
    cr_expect(eq(int, place_end_of(train), 0), "%s", place_content(&at, "said"));
    const char *told = place_content(&at, "said");
    cr_expect(lines_about(told, "restart 4 of 4") == 1);
    cr_expect(lines_about(told, " to 150 of 150 after 4 restarts: ") == 1, "%s", told);
    const char *whole = place_content(&at, "run.jsonl");
    place_must(&at, "train @/plan.json --data @/text.tokens --warmup-steps 0 "
                    "--learning-rate 1e-3 --steps 150 --metrics @/alone.jsonl");
    const char *alone = place_content(&at, "alone.jsonl");
    cr_expect(eq(int, lines_about(whole, "\"step\":"), 150));
    for (int step = 0; step < 150; step++)
        cr_expect(loss_of(whole, step) == loss_of(alone, step), "step %d: %g, not %g", step,
                  loss_of(whole, step), loss_of(alone, step));
    /* What was exported begins another run where this one ended. */
    cr_expect(place_run(&at, "train @/plan.json --data @/text.tokens --steps 1 "
                             "--init-from @/model.safetensors --metrics @/next.jsonl") == 0,
              "%s", place_content(&at, "said"));
    double old = loss_of(whole, 0), new = loss_of(place_content(&at, "next.jsonl"), 0);
    cr_expect(new > 0 && new < old - 0.2, "it begins at a loss of %g, this one at %g", new, old);
    place_leave(&at);
}

Test(faults, a_stopped_rank)
{
    struct place at = new_place();
    pid_t train = place_begin(&at, TRAIN "--steps 100000 --timeout-s 2");
    strike(&at, train, 3, SIGSTOP);
    cr_expect(eq(int, place_end_of(train), MCP_RUN_FAILURE));
    const char *said = place_content(&at, "said");
    cr_expect(lines_about(said, "has been stopped") == 1, "%s", said);
    cr_expect(lines_about(said, "mcpplan: rank ") == 1, "%s", said);
    place_leave(&at);
}

/* Another run cannot have the same folder of checkpoints. */
static void run_beside(const struct place *at)
{
    const struct place other = {at->arena, mcp_format(at->arena, "%s/other", at->folder),
                                at->program};
    mkdir(other.folder, 0777);
    cr_expect(eq(int,
                 place_run(&other, "train @/../plan.json --data @/../text.tokens --steps 9 "
                                   "--resume --checkpoint-dir @/../saved"),
                 MCP_IO));
    const char *said = place_content(&other, "said");
    cr_expect(lines_about(said, "another run keeps its checkpoints") == 1, "%s", said);
}

/* The ranks save what they have, also of steps after the last checkpoint that was due; nothing
 * begins again. */
Test(faults, asked_to_end)
{
    static const struct {
        int number;
        const char *resume, *says;
    } cases[] = {
        {SIGTERM, "", "ended as asked by signal 15 (Terminated): --resume goes on"},
        {SIGINT, "--resume", "ended as asked by signal 2 (Interrupt): --resume goes on"},
    };
    struct place at = new_place();
    int done = 0;
    for (int i = 0; i < 2; i++) {
        pid_t train = place_begin(&at, mcp_format(at.arena,
                                                  TRAIN "--steps 100000 --checkpoint-dir @/saved "
                                                        "--max-restarts 3 %s",
                                                  cases[i].resume));
        strike(&at, train, done + 3, 0);
        run_beside(&at);
        cr_assert(kill(train, cases[i].number) == 0);
        cr_expect(eq(int, place_end_of(train), 0));
        const char *said = place_content(&at, "said");
        cr_expect(lines_about(said, "restart") == 0, "%s", said);
        cr_expect(lines_about(said, cases[i].says) == 1, "%s", said);
        const char *steps = mcp_format(at.arena, "mcpplan: note: trained steps %d to ", done + 1);
        cr_expect(lines_about(said, steps) == 1, "%s", said);
        cr_expect(lines_about(said, "mcpplan: ") == 2, "%s", said);
        done = lines_about(place_content(&at, "run.jsonl"), "\"step\":");
        cr_expect(access(mcp_format(at.arena, "%s/saved/step-%012d/manifest.json", at.folder, done),
                         F_OK) == 0,
                  "%d steps", done);
    }
    place_leave(&at);
}

/* One sentence on stderr, an exit code of its kind. */
Test(faults, that_need_no_signal)
{
    static const struct {
        const char *command;
        int code;
        const char *says;
    } cases[] = {
        {"train @/plan.json --data @/text.tokens --warmup-steps 0 --steps 100 "
         "--learning-rate 1e30",
         MCP_RUN_FAILURE, "not finite in 10 steps"},
        {"train @/plan.json --data @/short.tokens --steps 1", MCP_INVALID, "short.tokens"},
        {TRAIN "--steps 1 --checkpoint-dir @/model.json/run", MCP_IO, "model.json/run"},
        {TRAIN "--steps 1 --max-restarts 1", MCP_USAGE, "--checkpoint-dir"},
        {TRAIN "--steps 1 --export @/x", MCP_USAGE, "--checkpoint-dir"},
        {TRAIN "--steps 1 --frozen-program @/model.json", MCP_USAGE, "--program names the first"},
        {TRAIN "--steps 1 --checkpoint-dir @/mine", MCP_INVALID, "holds a checkpoint of step 1"},
        {TRAIN "--steps 2 --checkpoint-dir @/mine --resume --seed 7", MCP_INVALID,
         "--seed 7: the checkpoint of step 1 has 0"},
        {TRAIN "--steps 1 --timeline @/none/t.json", MCP_IO, "none/t.json: No such file"},
        {TRAIN "--steps 1 -o @", MCP_IO, "is a directory"},
        {TRAIN "--steps 1 --initial-loss-scale 8", MCP_INVALID, "the plan's precision is fp32"},
        {TRAIN "--steps 1 --resume", MCP_USAGE, "need --checkpoint-dir"},
        {TRAIN "--steps 2 --program @/program.json --frozen-program @/data.json --freeze-step 1",
         MCP_INVALID, "both must be of one plan and job"},
    };
    struct place at = new_place();
    cr_assert(place_shell(&at, "echo hi > @/short.txt") == 0);
    cr_assert(place_run(&at, "data tokenize @/short.txt -o @/short.tokens") == 0);
    cr_assert(place_run(&at, PLAN " --dump-program @/program.json") == 0);
    cr_assert(place_run(&at, PLACE_PLAN
                        "--data-parallel 2 -o @/other.json --dump-program @/data.json") == 0);
    cr_assert(place_run(&at, TRAIN "--steps 1 --checkpoint-dir @/mine") == 0);
    for (size_t i = 0; i < MCP_COUNT_OF(cases); i++) {
        int code = place_run(&at, cases[i].command);
        const char *said = place_content(&at, "said");
        cr_expect(eq(int, code, cases[i].code), "%s: %s", cases[i].command, said);
        cr_expect(lines_about(said, cases[i].says) == 1, "%s: %s", cases[i].command, said);
        cr_expect(lines_about(said, "mcpplan: ") == 1, "%s: %s", cases[i].command, said);
    }
    /* These are no faults, but not passed over either. */
    place_must(&at, "data tokenize examples/text/fables.txt -o @/other.tokens");
    place_must(&at, "train @/plan.json --data @/other.tokens --steps 1 --resume "
                    "--checkpoint-dir @/mine");
    const char *said = place_content(&at, "said");
    cr_expect(lines_about(said, "those of the checkpoint had") == 1, "%s", said);
    cr_expect(lines_about(said, "--steps 1 asks for no more") == 1, "%s", said);
    place_leave(&at);
}

/* --- a disk that is full --- */

/* KiB of a checkpoint of the plan. */
static long checkpoint_kib(const struct place *at)
{
    long kib = 0;
    cr_assert(place_run(at, TRAIN "--steps 1 --checkpoint-dir @/probe") == 0, "%s",
              place_content(at, "said"));
    cr_assert(place_shell(at, "du -sk @/probe > @/size") == 0);
    cr_assert(sscanf(place_content(at, "size"), "%ld", &kib) == 1 && kib > 0);
    return kib;
}

/* The third checkpoint finds no room: the run ends with one sentence, and goes on from the
 * second one when there is. A full disk ends it for metrics and the timeline too. */
Test(faults, a_full_disk)
{
    struct place at = new_place();
    const long kib = checkpoint_kib(&at);
    if (place_shell(&at,
                    mcp_format(at.arena, "mkdir @/disk && mount -t tmpfs -o size=%ldk none @/disk",
                               kib * 5 / 2)) != 0) {
        cr_log_warn("no file system may be mounted here: no disk is full");
        place_leave(&at);
        return;
    }
    int code = place_run(&at, TRAIN "--steps 9 --checkpoint-dir @/disk/saved --checkpoint-every 1");
    const char *said = place_content(&at, "said");
    cr_expect(eq(int, code, MCP_IO));
    cr_expect(lines_about(said, "No space left on device") == 1, "%s", said);
    cr_expect(lines_about(said, "mcpplan: ") == 1, "%s", said);
    code = place_run(&at,
                     TRAIN "--steps 4 --resume --checkpoint-dir @/disk/saved --timeline @/disk/t");
    cr_expect(eq(int, code, MCP_IO)); /* there still is none */
    cr_assert(
        place_shell(&at, mcp_format(at.arena, "mount -o remount,size=%ldk @/disk", kib * 9)) == 0);
    code = place_run(&at, TRAIN "--steps 4 --resume --checkpoint-dir @/disk/saved");
    cr_expect(eq(int, code, 0), "%s", place_content(&at, "said"));
    cr_expect(eq(int, lines_about(place_content(&at, "run.jsonl"), "\"step\":"), 4));
    cr_expect(place_shell(&at, "cat /dev/zero > @/disk/rest 2> /dev/null") != 0);
    static const char *const full[] = {"--timeline @/disk/timeline.json", "--metrics @/disk/rest2"};
    for (size_t i = 0; i < MCP_COUNT_OF(full); i++) {
        code = place_run(
            &at, mcp_format(at.arena,
                            "train @/plan.json --data @/text.tokens --steps 1 --warmup-steps 1 %s",
                            full[i]));
        said = place_content(&at, "said");
        cr_expect(eq(int, code, MCP_IO), "%s: %s", full[i], said);
        cr_expect(lines_about(said, "No space left on device") == 1, "%s: %s", full[i], said);
        cr_expect(lines_about(said, "mcpplan: ") == 1, "%s: %s", full[i], said);
    }
    cr_expect(place_shell(&at, "umount @/disk") == 0);
    place_leave(&at);
}

#ifndef __SANITIZE_ADDRESS__ /* which maps more than any limit */
/* A model of 64 GB a rank, of which each may have 8. */
Test(faults, out_of_memory)
{
    struct place at = place_new();
    place_must(&at, "plan --model llama-3.1-8b --cluster dgx-a100 --gpus 2 --tensor-parallel 2 "
                    "--global-batch-size 2 --sequence-length 32 --precision fp32 "
                    "--stack mcpplan-cpu -o @/plan.json");
    const char *command = mcp_format(at.arena,
                                     "ulimit -v 8000000; %s train @/plan.json --data "
                                     "@/text.tokens --steps 1 --warmup-steps 1 > @/out 2> @/said",
                                     at.program);
    cr_expect(eq(int, place_shell(&at, command), MCP_RUN_FAILURE));
    const char *said = place_content(&at, "said");
    cr_expect(lines_about(said, "ran out of memory\n") == 1, "%s", said);
    cr_expect(eq(sz, strcspn(said, "\n") + 1, strlen(said)), "not one sentence: %s", said);
    place_leave(&at);
}
#endif

/* --- ranks that somebody's own mpirun starts --- */

/* Two ranks of two steps from one checkpoint folder, each with words of its own before and
 * after the executor's. What they say without mpirun's banners is in @/said. */
static int run_apart(const struct place *at, int timeout_s, const char *before, const char *after)
{
    const char *line = mcp_format(
        at->arena,
        "export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 OMP_NUM_THREADS=1 "
        "OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_ALLOW_RUN_AS_ROOT=1 "
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; each='%s-exec-cpu --program %s/program.json --data "
        "%s/text.tokens --steps 2 --checkpoint-dir %s/apart --resume --timeout-s %d'; "
        "mpirun --oversubscribe --bind-to none -np 1 $each : -np 1 %s $each %s > %s/out 2> %s/all; "
        "code=$?; grep '^mcpplan' %s/all > %s/said; exit $code",
        at->program, at->folder, at->folder, at->folder, timeout_s, before, after, at->folder,
        at->folder, at->folder, at->folder);
    int status = system(line);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* One rank lacks a file before the others look for a checkpoint together; or it never begins. */
Test(faults, ranks_apart)
{
    struct place at = new_place();
    cr_assert(place_run(&at, PLAN " --dump-program @/program.json") == 0);
    const int long_s = 60, short_s = 3; /* the last one has to be over */
    cr_expect(eq(int, run_apart(&at, long_s, "", "--init-from nowhere"), MCP_IO));
    cr_expect(eq(str, (char *)place_content(&at, "said"),
                 "mcpplan-exec-cpu: rank 1 cannot begin: nowhere: No such file or directory\n"));
    cr_expect(eq(int, run_apart(&at, long_s, "", "--steps 3"), MCP_USAGE));
    cr_expect(
        eq(str, (char *)place_content(&at, "said"), "mcpplan-exec-cpu: --steps is there twice\n"));
    const char *stops = "sh -c 'kill -STOP $$; exec \"$0\" \"$@\"'";
    cr_expect(eq(int, run_apart(&at, short_s, stops, ""), MCP_RUN_FAILURE));
    const char *said = place_content(&at, "said");
    cr_expect(lines_about(said, "one is missing, or has stopped") == 1, "%s", said);
    place_leave(&at);
}

/* What launchers leave in the environment, and what follows. */
Test(faults, launchers)
{
    static const struct {
        const char *name, *value, *says;
        int code;
    } cases[] = {
        {"SLURM_STEP_NUM_TASKS", "1", "so mpirun starts 2", 0}, /* a shell in a step */
        {"SLURM_NTASKS", "4", "step 1/1", 0},                   /* a batch script */
        {"SLURM_STEP_NUM_TASKS", "2", "one of the ranks", MCP_INVALID},
        {"PMI_RANK", "0", "one of the ranks", MCP_INVALID},
        {"TORCHELASTIC_RUN_ID", "run7", "one of the ranks", MCP_INVALID},
    };
    struct place at = new_place();
    for (size_t i = 0; i < MCP_COUNT_OF(cases); i++) {
        setenv(cases[i].name, cases[i].value, 1);
        int code = place_run(&at, TRAIN "--steps 1");
        unsetenv(cases[i].name);
        const char *said = place_content(&at, "said");
        cr_expect(eq(int, code, cases[i].code), "%s=%s: %s", cases[i].name, cases[i].value, said);
        cr_expect(lines_about(said, cases[i].says) == 1, "%s=%s: %s", cases[i].name, cases[i].value,
                  said);
    }
    place_leave(&at);
}

/* --- numbers of groups --- */

static double sum_of_squares(struct mcp_json *groups)
{
    double sum = 0, norm;
    for (size_t i = 0; i < mcp_json_count(groups); i++) {
        cr_assert(mcp_json_double(mcp_json_at(groups, i), "grad_norm", &norm, NULL) == MCP_OK);
        sum += norm * norm;
    }
    return sum;
}

/* Groups' squares are the global norm's, in any layout; every look has all layers. */
Test(faults, groups_add_up)
{
    struct place at = new_place();
    struct mcp_error err = {""};
    double norm = 0;
    cr_assert(place_run(&at, TRAIN "--steps 3 --watch-every 2") == 0, "%s",
              place_content(&at, "said"));
    const char *line = place_content(&at, "run.jsonl");
    for (int step = 0; step < 3; step++) {
        const char *end = strchr(line, '\n');
        struct mcp_json *json, *groups = NULL;
        cr_assert(end != NULL);
        cr_assert(mcp_json_parse(at.arena, "run.jsonl", line, (size_t)(end - line), &json, &err) ==
                  MCP_OK);
        line = end + 1;
        cr_expect(eq(int, mcp_json_has(json, "groups"), step != 1));
        cr_expect(eq(int, mcp_json_has(json, "activations"), step != 1));
        if (step == 1)
            continue;
        cr_assert(mcp_json_array(json, "groups", &groups, &err) == MCP_OK, "%s", err.text);
        cr_assert(mcp_json_double(json, "grad_norm", &norm, &err) == MCP_OK);
        double ratio = sum_of_squares(groups) / (norm * norm);
        cr_expect(ratio > 1 - 1e-5 && ratio < 1 + 1e-5, "step %d: %g", step, ratio);
    }
    place_leave(&at);
}
