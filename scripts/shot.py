"""Draw a Neovim screen: attach as a UI, keep the cell grid, paint it to a PNG, or to a GIF of the moments that were named."""
import argparse, copy, threading, time, unicodedata
import pynvim
from PIL import Image, ImageDraw, ImageFont

def wait_until(nvim, expression, seconds=30):
    seen = []
    for _ in range(seconds * 20):
        def ask():
            seen.append(nvim.exec_lua(f"local ok, v = pcall(function() return {expression} end) return ok and v and true or false"))
        before = len(seen)
        nvim.async_call(ask)
        while len(seen) == before: time.sleep(0.01)
        if seen[-1]: return
        time.sleep(0.05)
    raise SystemExit(f"shot: gave up waiting for {expression}")

def grid_of(nvim, cols, rows, keys, settle):
    """Presses the keys and returns the screen, with `moments`: (milliseconds, caption, screen) for each `frame:`."""
    state = dict(moments=[], grid=[[(" ", 0)] * cols for _ in range(rows)], hl={0: {}}, colors={}, cursor=[0, 0])
    def on_event(name, batches):
        for kind, *calls in (batches if name == "redraw" else []):
            for c in calls:
                g = state["grid"]
                if kind == "grid_resize": state["grid"] = [[(" ", 0)] * c[1] for _ in range(c[2])]
                elif kind == "grid_clear": state["grid"] = [[(" ", 0)] * len(g[0]) for _ in g]
                elif kind == "default_colors_set": state["colors"] = dict(fg=c[0], bg=c[1])
                elif kind == "hl_attr_define": state["hl"][c[0]] = c[1]
                elif kind == "grid_cursor_goto": state["cursor"] = list(c[1:3])
                elif kind == "grid_line":
                    row, col, attr = c[1], c[2], 0
                    for cell in c[3]:
                        attr = cell[1] if len(cell) > 1 else attr
                        for _ in range(cell[2] if len(cell) > 2 else 1):
                            g[row][col] = (cell[0], attr); col += 1
                elif kind == "grid_scroll":
                    top, bot, left, right, n = c[1:6]
                    for r in (range(top, bot - n) if n > 0 else range(bot - 1, top - n - 1, -1)):
                        g[r][left:right] = g[r + n][left:right]
    def moment():
        return {name: copy.deepcopy(state[name]) for name in ("grid", "hl", "colors", "cursor")}
    def start():
        def stop():
            for k in keys:
                if k.startswith("wait:"): wait_until(nvim, k[5:])        # a Lua expression that becomes true
                elif k.startswith("sleep:"): time.sleep(float(k[6:]))
                elif k.startswith("frame:"):                             # frame:MILLISECONDS:caption
                    shown, caption = k[6:].split(":", 1)
                    time.sleep(0.25)
                    wanted = len(state["moments"]) + 1
                    nvim.async_call(lambda s=int(shown), c=caption: state["moments"].append((s, c, moment())))
                    while len(state["moments"]) < wanted: time.sleep(0.01)
                else: nvim.async_call(nvim.input, k)
            time.sleep(settle); nvim.async_call(nvim.stop_loop)
        threading.Thread(target=stop, daemon=True).start()
    nvim.ui_attach(cols, rows, rgb=True, ext_linegrid=True)
    nvim.run_loop(lambda *_: None, on_event, start)
    return state

def paint(state, caption=None, size=16):
    mono = ImageFont.truetype("DejaVuSansMono.ttf", size)
    try: cjk = ImageFont.truetype("wqy-microhei.ttc", size)
    except OSError: cjk = mono
    w, h, grid = round(mono.getlength("M")), int(size * 1.3), state["grid"]
    color = lambda v, default: "#%06x" % (default if v is None or v < 0 else v)
    below = 0 if caption is None else 2 * h
    img = Image.new("RGB", (w * len(grid[0]), h * len(grid) + below), "#f2f2f2"); d = ImageDraw.Draw(img)
    if caption: d.text((w, h * len(grid) + h // 2), caption, font=mono, fill="#1b1b1f")
    for y, line in enumerate(grid):
        for x, (text, attr) in enumerate(line):
            if text == "": continue                      # right half of a wide cell
            a = state["hl"].get(attr, {}); wide = 2 if unicodedata.east_asian_width(text[0]) in "WF" else 1
            fg = color(a.get("foreground"), state["colors"].get("fg", 0xE0E2EA))
            bg = color(a.get("background"), state["colors"].get("bg", 0x14161B))
            if bool(a.get("reverse")) != ([y, x] == state["cursor"]): fg, bg = bg, fg
            box = [x * w, y * h, (x + wide) * w - 1, (y + 1) * h - 1]
            d.rectangle(box, fill=bg)
            d.text(box[:2], text, font=cjk if wide == 2 else mono, fill=fg)
            if a.get("underline") or a.get("undercurl"): d.line([box[0], box[3] - 1, box[2], box[3] - 1], fill=fg)
    return img

def animate(moments, path):
    """Few colours and only what changed: a picture of a minute in well under a megabyte."""
    frames = [paint(screen, caption) for _, caption, screen in moments]
    palette = frames[len(frames) // 2].quantize(96)
    frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=[m[0] for m in moments], loop=0, optimize=True)

p = argparse.ArgumentParser(); p.add_argument("out"); p.add_argument("--nvim", default="nvim"); p.add_argument("--size", default="100x28")
p.add_argument("--keys", action="append", default=[]); p.add_argument("--arg", action="append", default=[]); p.add_argument("--settle", type=float, default=0.8)
o = p.parse_args(); cols, rows = map(int, o.size.split("x"))
nv = pynvim.attach("child", argv=[o.nvim, "--embed", "-n", "-i", "NONE", *o.arg])
state = grid_of(nv, cols, rows, o.keys, o.settle)
if o.out.endswith(".gif"): animate(state["moments"], o.out)
else: paint(state).save(o.out)
nv.close()
