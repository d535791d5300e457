/*
 * One call into libjpeg that cannot leave by any other way than its return value.
 *
 * libjpeg reports fatal errors through a function that must not return. Here that function jumps
 * back into the same call, so no foreign frame is ever unwound and nothing of libjpeg outlives it.
 * The bytes are all in memory: asking for more means that they are truncated, and libjpeg is
 * suspended rather than fed a made-up end, so a cut picture is refused and not completed with grey.
 */

#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

enum outcome { DECODED = 0, BROKEN = 1, TRUNCATED = 2, OTHER_SIZE = 3 };

struct failure {
    struct jpeg_error_mgr manager;
    jmp_buf escape;
    char *message;
};

static void leave(j_common_ptr info)
{
    struct failure *failure = (struct failure *)info->err;
    failure->manager.format_message(info, failure->message);
    longjmp(failure->escape, 1);
}

static void stay_silent(j_common_ptr info)
{
    (void)info;
}

/*
 * A scan of a hundred bytes makes libjpeg walk over the whole picture once more, so a small file
 * could keep it busy for days. Encoders write a few dozen scans at most.
 */
static void count_scans(j_common_ptr info)
{
    enum { MOST_SCANS = 100 };
    struct failure *failure = (struct failure *)info->err;
    if (((j_decompress_ptr)info)->input_scan_number <= MOST_SCANS)
        return;
    strcpy(failure->message, "too many scans");
    longjmp(failure->escape, 1);
}

static void do_nothing(j_decompress_ptr info)
{
    (void)info;
}

static boolean suspend(j_decompress_ptr info)
{
    (void)info;
    return FALSE;
}

static void skip(j_decompress_ptr info, long count)
{
    struct jpeg_source_mgr *source = info->src;
    size_t left = source->bytes_in_buffer;
    size_t step = count <= 0 ? 0 : (size_t)count < left ? (size_t)count : left;
    source->next_input_byte += step;
    source->bytes_in_buffer -= step;
}

static enum outcome decode(j_decompress_ptr info, unsigned char *pixels, size_t width,
                           size_t height, int channels)
{
    if (jpeg_read_header(info, TRUE) == JPEG_SUSPENDED)
        return TRUNCATED;
    info->out_color_space = channels == 4 ? JCS_CMYK : JCS_RGB;
    if (!jpeg_start_decompress(info))
        return TRUNCATED;
    if (info->output_width != width || info->output_height != height
        || info->output_components != channels)
        return OTHER_SIZE;
    while (info->output_scanline < info->output_height) {
        JSAMPROW row = pixels + (size_t)info->output_scanline * width * (size_t)channels;
        if (jpeg_read_scanlines(info, &row, 1) != 1)
            return TRUNCATED;
    }
    /* The rest of the file may be missing: all rows are there. */
    (void)jpeg_finish_decompress(info);
    return DECODED;
}

/*
 * Decode `length` bytes at `bytes` to `height` rows of `width` pixels of `channels` bytes: 3 is RGB,
 * 4 is CMYK as stored. `message` takes JMSG_LENGTH_MAX (200) bytes and is set if BROKEN.
 */
int sglang_mm_jpeg_decode(const unsigned char *bytes, size_t length, unsigned char *pixels,
                          size_t width, size_t height, int channels, char *message)
{
    struct jpeg_decompress_struct info;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    struct failure failure;
    enum outcome outcome;

    /* Zeroed, so that destroying is safe even if creating fails. */
    memset(&info, 0, sizeof info);
    memset(&source, 0, sizeof source);
    memset(&progress, 0, sizeof progress);
    progress.progress_monitor = count_scans;
    info.err = jpeg_std_error(&failure.manager);
    failure.manager.error_exit = leave;
    failure.manager.output_message = stay_silent;
    failure.message = message;
    source.init_source = do_nothing;
    source.fill_input_buffer = suspend;
    source.skip_input_data = skip;
    source.resync_to_restart = jpeg_resync_to_restart;
    source.term_source = do_nothing;
    source.next_input_byte = bytes;
    source.bytes_in_buffer = length;

    if (setjmp(failure.escape)) {
        jpeg_destroy_decompress(&info);
        return BROKEN;
    }
    jpeg_create_decompress(&info);
    info.src = &source;
    info.progress = &progress;
    outcome = decode(&info, pixels, width, height, channels);
    jpeg_destroy_decompress(&info);
    return outcome;
}
