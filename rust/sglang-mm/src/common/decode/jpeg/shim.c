/*
 * Decodes a JPEG in one call to libjpeg that always returns to its caller.
 *
 * libjpeg reports fatal errors through a function that must not return. Here that function jumps
 * back into this file with longjmp. So no Rust frame is unwound, and libjpeg's objects are destroyed.
 * The whole file is in memory. If libjpeg asks for more bytes, the file is truncated. libjpeg is
 * then suspended instead of being given a fake end, so a truncated image is refused and not filled
 * with grey.
 */

#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* The private headers of the linked library version. If its structures change, this file is
   compiled with the new ones, or does not compile. */
#define JPEG_INTERNALS
#include <jpeglib.h>
#include <jdct.h>
#include <jdsample.h>

enum outcome { DECODED = 0, BROKEN = 1, TRUNCATED = 2, OTHER_SIZE = 3, NO_MEMORY = 4 };

struct failure {
    struct jpeg_error_mgr manager;
    jmp_buf escape;
    char *message;
};

static void leave(j_common_ptr info)
{
    struct failure *failure = (struct failure *)info->err;
    failure->manager.format_message(info, failure->message);
    longjmp(failure->escape, info->err->msg_code == JERR_OUT_OF_MEMORY ? NO_MEMORY : BROKEN);
}

static void stay_silent(j_common_ptr info)
{
    (void)info;
}

/*
 * Limits the number of scans. A scan of a hundred bytes makes libjpeg process the whole image once
 * more, so a small file could keep it busy for days. Encoders write a few dozen scans at most.
 */
static void count_scans(j_common_ptr info)
{
    enum { MAX_SCANS = 100 };
    struct failure *failure = (struct failure *)info->err;
    if (((j_decompress_ptr)info)->input_scan_number <= MAX_SCANS)
        return;
    strcpy(failure->message, "too many scans");
    longjmp(failure->escape, BROKEN);
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

/* Must match `Kernels` in kernels/mod.rs. */
struct kernels {
    void (*inverse_dct)(const short *multipliers, const short *coefficients,
                        unsigned char *const *rows, size_t column);
    void (*ycc_to_rgb)(const unsigned char *luma, const unsigned char *blue,
                       const unsigned char *red, unsigned char *rgb, size_t width);
    void (*double_columns)(const unsigned char *row, unsigned char *out, size_t width);
    void (*double_columns_between)(const unsigned char *near, const unsigned char *far,
                                   unsigned char *out, size_t width);
};

static const struct kernels *kernels_of(j_decompress_ptr info)
{
    return info->client_data;
}

static void inverse_dct(j_decompress_ptr info, jpeg_component_info *component, JCOEFPTR block,
                        JSAMPARRAY rows, JDIMENSION column)
{
    kernels_of(info)->inverse_dct(component->dct_table, block, rows, column);
}

/* Fill the component's multiplier table, which libjpeg filled for the method replaced here. It stays
   zero if the file has no quantization table. */
static void use_inverse_dct(j_decompress_ptr info, int i)
{
    jpeg_component_info *component = &info->comp_info[i];
    short *multipliers = component->dct_table;
    info->idct->inverse_DCT[i] = inverse_dct;
    for (int at = 0; component->quant_table != NULL && at < DCTSIZE2; at++)
        multipliers[at] = (short)component->quant_table->quantval[at];
}

static void ycc_to_rgb(j_decompress_ptr info, JSAMPIMAGE planes, JDIMENSION row, JSAMPARRAY out,
                       int count)
{
    for (; count > 0; count--, row++, out++)
        kernels_of(info)->ycc_to_rgb(planes[0][row], planes[1][row], planes[2][row], *out,
                                     info->output_width);
}

static void double_columns(j_decompress_ptr info, jpeg_component_info *component, JSAMPARRAY rows,
                           JSAMPARRAY *out)
{
    for (int row = 0; row < info->max_v_samp_factor; row++)
        kernels_of(info)->double_columns(rows[row], (*out)[row], component->downsampled_width);
}

/* libjpeg provides a row above the first and below the last, because the method that this one
   replaces needs them. */
static void double_both(j_decompress_ptr info, jpeg_component_info *component, JSAMPARRAY rows,
                        JSAMPARRAY *out)
{
    for (int row = 0; row < info->max_v_samp_factor; row++) {
        int near = row / 2;
        int far = row % 2 == 0 ? near - 1 : near + 1;
        kernels_of(info)->double_columns_between(rows[near], rows[far], (*out)[row],
                                                 component->downsampled_width);
    }
}

/*
 * Replace libjpeg's methods by our equivalent kernels. The methods are private to libjpeg, so they
 * are recognised by the conditions under which libjpeg chooses them.
 */
static void use_kernels(j_decompress_ptr info)
{
    my_upsample_ptr upsample = (my_upsample_ptr)info->upsample;
    for (int i = 0; i < info->num_components; i++) {
        const jpeg_component_info *component = &info->comp_info[i];
        int half_width = component->h_samp_factor * 2 == info->max_h_samp_factor;
        int fancy = info->do_fancy_upsampling && component->downsampled_width > 2;
        if (info->idct->inverse_DCT[i] == jpeg_idct_islow)
            use_inverse_dct(info, i);
        if (!component->component_needed || !half_width || !fancy)
            continue;
        if (component->v_samp_factor == info->max_v_samp_factor)
            upsample->methods[i] = double_columns;
        else if (component->v_samp_factor * 2 == info->max_v_samp_factor)
            upsample->methods[i] = double_both;
    }
    if (info->jpeg_color_space == JCS_YCbCr && info->out_color_space == JCS_RGB)
        info->cconvert->color_convert = ycc_to_rgb;
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
    use_kernels(info);
    while (info->output_scanline < info->output_height) {
        JSAMPROW row = pixels + (size_t)info->output_scanline * width * (size_t)channels;
        if (jpeg_read_scanlines(info, &row, 1) != 1)
            return TRUNCATED;
    }
    /* All rows are decoded, so the rest of the file may be missing. */
    (void)jpeg_finish_decompress(info);
    return DECODED;
}

/*
 * Decode `length` bytes at `bytes` to `height` rows of `width` pixels of `channels` bytes: 3 is RGB,
 * 4 is CMYK as stored. All pixels are written if the result is DECODED. `message` must have
 * JMSG_LENGTH_MAX (200) bytes and is set if the result is BROKEN.
 */
int sglang_mm_jpeg_decode(const unsigned char *bytes, size_t length, unsigned char *pixels,
                          size_t width, size_t height, int channels, const struct kernels *kernels,
                          char *message)
{
    struct jpeg_decompress_struct info;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    struct failure failure;
    enum outcome outcome;

    /* Zeroed, so that destroying the object is safe even if creating it fails. */
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

    switch (setjmp(failure.escape)) {
    case 0:
        break;
    case NO_MEMORY:
        jpeg_destroy_decompress(&info);
        return NO_MEMORY;
    default:
        jpeg_destroy_decompress(&info);
        return BROKEN;
    }
    jpeg_create_decompress(&info);
    info.client_data = (void *)kernels;
    info.src = &source;
    info.progress = &progress;
    outcome = decode(&info, pixels, width, height, channels);
    jpeg_destroy_decompress(&info);
    return outcome;
}
