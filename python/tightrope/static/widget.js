// ../page/src/engine/types.ts
var e = [
	"weight",
	"frozen",
	"optimizer",
	"gradient",
	"activation",
	"workspace",
	"input"
], t = [
	"B",
	"KiB",
	"MiB",
	"GiB",
	"TiB"
], n = [
	"",
	"k",
	"M",
	"G",
	"T"
], r = 1024, i = 1e3, a = 3;
function o(e, t, n) {
	let r = 0, o = e;
	for (; r < n.length - 1 && Number(o.toPrecision(a)) >= Math.min(t, i);) o /= t, r += 1;
	let s = Math.max(1, Math.floor(Math.log10(Math.max(o, 1))) + 1);
	return [r === 0 ? String(Math.round(o)) : o.toFixed(Math.max(0, a - s)), n[r] ?? ""];
}
function s(e) {
	return o(e, r, t).join(" ");
}
function c(e) {
	return s(e).replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ");
}
function l(e) {
	return Math.round(e).toString().replace(/\B(?=(\d{3})+$)/g, ",");
}
function u(e) {
	return o(e, i, n).join("");
}
function d(e) {
	if (e >= 1) return `${e.toFixed(e < 10 ? 2 : 1)} s`;
	let t = e * 1e3;
	return t > 0 && t < .1 ? `${(t * 1e3).toFixed(1)} µs` : t >= 100 ? `${Math.round(t)} ms` : t >= 1 ? `${t.toFixed(1)} ms` : `${t.toFixed(2)} ms`;
}
function f(e) {
	let t = e * 100;
	return t > 0 && t < .1 ? "< 0.1 %" : `${t.toFixed(+(t < 10))} %`;
}
// ../page/src/ui/dom.ts
function p(e, t = {}, ...n) {
	let r = document.createElement(e);
	for (let [e, n] of Object.entries(t)) n !== void 0 && n !== !1 && r.setAttribute(e, n === !0 ? "" : String(n));
	return r.append(...n), r;
}
function m(e) {
	return e.split("`").map((e, t) => t % 2 == 0 ? document.createTextNode(e) : p("code", {}, e));
}
function h(e, t) {
	e.textContent !== t && (e.textContent = t);
}
function g(e, t, n = "button") {
	let r = p("button", {
		type: "button",
		class: n
	}, e);
	return r.addEventListener("click", t), r;
}
// ../page/src/arena/legend.ts
var _ = class {
	#e;
	#t;
	#n = null;
	constructor(e, t) {
		this.#e = e, this.#t = t;
	}
	show({ by_class: t }) {
		let n = e.filter((e) => (t[e] ?? 0) > 0);
		this.#e.replaceChildren(...n.map((e) => this.#r(e, t[e])));
	}
	#r(e, t) {
		let n = g("", () => this.#i(e), "");
		return n.dataset.class = e, n.setAttribute("aria-pressed", String(this.#n === e)), n.append(p("i", { class: `swatch-${e}` }), e, p("b", {}, s(t))), n;
	}
	#i(e) {
		this.#n = this.#n === e ? null : e, this.#t(this.#n);
		for (let e of this.#e.querySelectorAll("button")) e.setAttribute("aria-pressed", String(e.dataset.class === this.#n));
	}
}, v = {
	weight: "a weight: every step reads it, and the update writes it",
	frozen: "a frozen weight: steps read it, and none writes it",
	optimizer: "state of the optimizer: each update reads and writes it",
	gradient: "a sum over micro-batches: each adds to it, and the update reads it",
	activation: "kept from one program to the next",
	workspace: "scratch that every step uses again",
	input: "the host writes it before each step"
};
function y(e, t) {
	let n = e[t];
	return n === void 0 ? `step ${t}` : `step ${t} · ${n.op} (${n.phase})`;
}
function b(e, t, n) {
	let r = e.tensors[t], i = [
		["Type", r.type],
		["Class", r.class],
		["Size", `${s(r.bytes)} · ${l(r.bytes)} B`]
	], a = r.read_by.find((e) => e >= n) ?? null;
	if (r.kept && i.push(["Kept", `For the whole run: ${v[r.class]}.`]), r.kept || i.push(["Made by", y(e.ops, r.birth)]), a !== null) i.push(["Read next by", y(e.ops, a)]);
	else {
		let t = r.read_by.at(-1);
		t !== void 0 && i.push(["Last read by", y(e.ops, t)]);
	}
	if (!r.kept) {
		let t = r.birth, n = r.death - t + 1;
		i.push(["Alive", `Steps ${t} to ${r.death}, ${n} of ${e.ops.length}`]);
	}
	return i.push(["Recomputing", x(e, r)]), {
		title: r.name,
		rows: i
	};
}
function x({ name: e, ops: t }, { kept: n, again_s: r }) {
	if (r === null) return n ? "Not possible: it is state." : "Not possible at its next use.";
	let i = t.reduce((e, { seconds: t }) => e + t, 0), a = i > 0 ? `, ${f(r / i)} of program “${e}”` : "";
	return `Would take ${d(r)}${a}.`;
}
// ../page/src/arena/detail.ts
var S = "Point at the map, or focus it and use the arrow keys, to see what a tensor is and why it’s alive.";
function C(e, t, n) {
	if (t === null || n === null) {
		e.replaceChildren(p("p", { class: "hint" }, S));
		return;
	}
	let r = t.program.ops[n.step], i = s(r?.live ?? 0), a = [p("p", { class: "hint" }, `Step ${n.step} · ${r?.op ?? ""} · ${i} live`)];
	if (n.tensor === null) a.push(p("p", { class: "hint" }, "Nothing is here at this step."));
	else {
		let { title: e, rows: r } = b(t.program, n.tensor, n.step), i = p("dl", {});
		for (let [e, t] of r) i.append(p("dt", {}, e), p("dd", {}, t));
		a.push(p("h3", {}, e), i);
	}
	e.replaceChildren(...a);
}
// ../page/src/arena/geometry.ts
function w(e, t) {
	return e.left + t / Math.max(1, e.steps) * e.width;
}
function T(e, t) {
	return e.top + e.height * (1 - t / Math.max(1, e.bytes));
}
function E(e, t) {
	return [e.birth, Math.min(t, e.death + 1)];
}
function D(e, t) {
	let [n, r] = E(t, e.steps), i = w(e, n), a = T(e, t.offset + t.bytes);
	return {
		x: i,
		y: a,
		width: w(e, r) - i,
		height: T(e, t.offset) - a
	};
}
function O(e, t) {
	let n = Math.round(e.x * t), r = Math.round(e.y * t), i = Math.round((e.x + e.width) * t), a = Math.round((e.y + e.height) * t);
	return {
		x: n,
		y: r,
		width: Math.max(1, i - n),
		height: Math.max(1, a - r)
	};
}
function k(e, t, n) {
	let r = (t - e.left) / e.width, i = 1 - (n - e.top) / e.height;
	return r < 0 || r >= 1 || i < 0 || i >= 1 ? null : {
		step: Math.floor(r * e.steps),
		offset: Math.floor(i * e.bytes)
	};
}
function ee(e, t) {
	return e.birth <= t && t <= e.death;
}
function A(e, t, n) {
	let r = null, i = -Infinity;
	return e.forEach((e, a) => {
		let o = e.kept ? -1 : e.birth;
		e.offset <= n && n < e.offset + e.bytes && ee(e, t) && o > i && (r = a, i = o);
	}), r;
}
function j(e, t) {
	return e.map((e, t) => t).filter((n) => ee(e[n], t)).sort((t, n) => e[t].offset - e[n].offset);
}
function te(e) {
	let t = 0;
	return e.forEach(({ live: n }, r) => {
		n > (e[t]?.live ?? 0) && (t = r);
	}), t;
}
function ne(e) {
	let t = [];
	return e.forEach(({ phase: e }, n) => {
		let r = t.at(-1);
		r?.phase === e ? r.to = n + 1 : t.push({
			phase: e,
			from: n,
			to: n + 1
		});
	}), t;
}
function re(e) {
	let t = [];
	for (let { phase: n, from: r, to: i } of ne(e)) {
		let e = t.at(-1), a = n === "backward" || n === "recompute";
		e !== void 0 && a && e.isBack ? (e.phases.add(n), e.to = i) : t.push({
			phases: /* @__PURE__ */ new Set([n]),
			isBack: a,
			from: r,
			to: i
		});
	}
	return t.map(({ phases: e, from: t, to: n }) => ({
		label: [...e].sort().join(", "),
		from: t,
		to: n
	}));
}
var ie = 1024, ae = [
	1,
	2,
	5,
	10,
	20,
	50,
	100,
	200,
	500
], M = [
	.1,
	.2,
	.25,
	.5
];
function N(e, t) {
	if (e <= 0) return [0];
	let n = ie ** Math.floor(Math.log(e) / Math.log(ie)), r = ((n === 1 ? ae : [...M, ...ae]).find((r) => e / (r * n) <= t) ?? ie) * n;
	return Array.from({ length: Math.floor(e / r) + 1 }, (e, t) => t * r);
}
// ../page/src/arena/paint.ts
var P = {
	left: 64,
	right: 12,
	top: 20,
	bottom: 34
}, oe = 5, F = 4, I = 4, se = .13, ce = 15;
function le(t) {
	let n = getComputedStyle(t), r = (e) => n.getPropertyValue(`--${e}`).trim();
	return {
		ink: r("ink"),
		muted: r("muted"),
		rule: r("rule"),
		surface: r("surface"),
		accent: r("accent"),
		font: `11px ${r("mono")}`,
		classes: Object.fromEntries(e.map((e) => [e, r(`class-${e}`)]))
	};
}
function ue(e, t, n, r) {
	return {
		left: P.left,
		top: P.top,
		width: Math.max(1, e - P.left - P.right),
		height: Math.max(1, t - P.top - P.bottom),
		steps: n,
		bytes: r
	};
}
function de(e, t, n, r) {
	let { width: i, height: a } = e.canvas;
	e.setTransform(1, 0, 0, 1, 0, 0), e.clearRect(0, 0, i, a), fe(e, t.frame, n, r), pe(e, t, n, r), e.setTransform(r, 0, 0, r, 0, 0), he(e, t, n), ge(e, t, n, r);
}
function fe(e, t, n, r) {
	e.setTransform(r, 0, 0, r, 0, 0), e.font = n.font, e.textAlign = "right", e.textBaseline = "middle";
	for (let i of N(t.bytes, oe)) {
		let a = xe(T(t, i), r);
		e.strokeStyle = n.rule, e.lineWidth = 1 / r, Se(e, t.left, a, t.left + t.width, a), e.fillStyle = n.muted, e.fillText(c(i), t.left - 8, a);
	}
}
function pe(e, t, n, r) {
	e.setTransform(1, 0, 0, 1, 0, 0);
	for (let i of t.planned.program.tensors) {
		let a = O(D(t.frame, i), r);
		e.globalAlpha = t.highlight !== null && i.class !== t.highlight ? se : 1, e.fillStyle = n.classes[i.class], e.fillRect(a.x, a.y, me(a.width), me(a.height));
	}
	e.globalAlpha = 1;
}
function me(e) {
	return e >= I ? e - 1 : e;
}
function he(e, { planned: t, frame: n }, r) {
	let i = n.top + n.height + 6, a = {
		forward: .25,
		backward: .5,
		recompute: .8,
		update: 1
	};
	e.textAlign = "left", e.textBaseline = "top";
	for (let { phase: o, from: s, to: c } of ne(t.program.ops)) {
		let t = w(n, s);
		e.globalAlpha = a[o], e.fillStyle = r.muted, e.fillRect(t, i, Math.max(w(n, c) - t - 1, .5), F);
	}
	e.globalAlpha = 1;
	for (let { label: r, from: a, to: o } of re(t.program.ops)) {
		let t = w(n, a);
		w(n, o) - t >= e.measureText(r).width + 8 && e.fillText(r, t, i + F + 6);
	}
}
function ge(e, t, n, r) {
	let { frame: i, planned: a } = t, o = t.budget !== null && t.budget <= i.bytes ? t.budget : null, c = i.left + i.width, l = (e) => xe(T(i, e), r), [u, d] = [l(a.peak_bytes), l(a.lower_bound_bytes)], f = a.peak_bytes - a.lower_bound_bytes;
	e.lineWidth = 1, e.strokeStyle = n.ink, Se(e, i.left, u, c, u), f > 0 && (e.setLineDash([2, 3]), Se(e, i.left, d, c, d), e.setLineDash([])), o !== null && (e.strokeStyle = n.accent, e.lineWidth = 1.5, Se(e, i.left, l(o), c, l(o)));
	let p = Math.abs(u - d) < ce, m = `peak ${s(a.peak_bytes)}`;
	f === 0 ? _e(e, `${m} = lower bound`, c, u, n.ink, n) : p ? _e(e, `${m}, lower bound ${s(f)} less`, c, u, n.ink, n) : (_e(e, m, c, u, n.ink, n), _e(e, `lower bound ${s(a.lower_bound_bytes)}`, c, d, n.ink, n)), o !== null && (Math.abs(l(o) - u) >= ce || i.width > 420) && _e(e, `budget ${s(o)}`, i.left, l(o), n.accent, n);
}
function _e(e, t, n, r, i, a) {
	let o = i === a.accent, s = e.measureText(t).width + 8, c = o ? n : n - s;
	e.fillStyle = a.surface, e.globalAlpha = .86, e.fillRect(c, r - ce - 1, s, ce), e.globalAlpha = 1, e.fillStyle = i, e.textAlign = "left", e.textBaseline = "middle", e.fillText(t, c + 4, r - ce / 2 - .5);
}
function ve(e, t, n, r, i) {
	if (e.setTransform(1, 0, 0, 1, 0, 0), e.clearRect(0, 0, e.canvas.width, e.canvas.height), i === null) return;
	let { frame: a, planned: o } = t;
	e.setTransform(r, 0, 0, r, 0, 0);
	let s = xe(w(a, i.step + .5), r);
	e.strokeStyle = n.ink, e.lineWidth = 1 / r, Se(e, s, a.top, s, a.top + a.height + 6 + F);
	let c = i.tensor === null ? void 0 : o.program.tensors[i.tensor];
	c !== void 0 && ye(e, c, a, n, i.step);
}
function ye(e, t, n, r, i) {
	let a = D(n, t);
	be(e, a, r);
	let o = t.read_by.find((e) => e >= i);
	e.fillStyle = r.ink;
	for (let r of t.read_by) {
		let t = w(n, r + .5), i = r === o ? 5 : 2.5;
		e.beginPath(), e.moveTo(t - i, a.y + a.height + i * 1.6), e.lineTo(t + i, a.y + a.height + i * 1.6), e.lineTo(t, a.y + a.height), e.fill();
	}
}
function be(e, t, n) {
	e.strokeStyle = n.surface, e.lineWidth = 4, e.strokeRect(t.x, t.y, t.width, t.height), e.strokeStyle = n.ink, e.lineWidth = 2, e.strokeRect(t.x, t.y, t.width, t.height);
}
function xe(e, t) {
	return (Math.round(e * t) + .5) / t;
}
function Se(e, t, n, r, i) {
	e.beginPath(), e.moveTo(t, n), e.lineTo(r, i), e.stroke();
}
// ../page/src/arena/map.ts
var L = "Left and right arrow keys change the step, up and down the tensor.", R = 1.07, Ce = class {
	#e;
	#t;
	#n;
	#r;
	#i;
	#a = null;
	#o = null;
	#s = 0;
	#c = null;
	#l = null;
	#u = 0;
	#d = new AbortController();
	constructor(e, t, n = "Tensors of one training step") {
		this.#e = e, this.#r = t, e.classList.add("arena"), e.tabIndex = 0, e.role = "application", e.ariaRoleDescription = "map of the arena", e.ariaLabel = `${n}: time to the right, offsets upwards. ${L}`, e.setAttribute("aria-describedby", t.id), C(t, null, null), this.#t = document.createElement("canvas"), this.#n = document.createElement("canvas");
		for (let e of [this.#t, this.#n]) e.setAttribute("aria-hidden", "true");
		e.append(this.#t, this.#n), this.#i = le(e);
		let { signal: r } = this.#d, i = new ResizeObserver(() => this.#f());
		i.observe(e);
		let a = new IntersectionObserver(() => this.#f());
		a.observe(e), r.addEventListener("abort", () => {
			i.disconnect(), a.disconnect();
		}), matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.restyle(), { signal: r }), document.fonts.ready.then(() => this.#f()), e.addEventListener("pointermove", (e) => this.#g(e), { signal: r }), e.addEventListener("pointerdown", (e) => this.#g(e), { signal: r }), e.addEventListener("pointerleave", () => {
			e.matches(":focus") || this.#h(null);
		}, { signal: r }), e.addEventListener("keydown", (e) => this.#v(e), { signal: r }), e.addEventListener("focus", () => {
			this.#l === null && e.matches(":focus-visible") && this.#_();
		}, { signal: r }), e.addEventListener("blur", () => this.#h(null), { signal: r });
	}
	restyle() {
		this.#i = le(this.#e), this.#f();
	}
	dispose() {
		cancelAnimationFrame(this.#u), this.#d.abort();
	}
	show(e, t, n) {
		this.#a = e, this.#o = t, this.#s = Math.max(n, e.peak_bytes), this.#l = null, C(this.#r, e, null), this.#f();
	}
	highlight(e) {
		this.#c = e, this.#f();
	}
	#f() {
		cancelAnimationFrame(this.#u), this.#u = requestAnimationFrame(() => {
			if (this.#e.clientWidth === 0) return;
			let e = window.devicePixelRatio || 1;
			for (let t of [this.#t, this.#n]) {
				let n = Math.round(this.#e.clientWidth * e), r = Math.round(this.#e.clientHeight * e);
				t.width !== n && (t.width = n), t.height !== r && (t.height = r);
			}
			let t = this.#m(), n = this.#t.getContext("2d");
			t !== null && n !== null && de(n, t, this.#i, e), this.#p();
		});
	}
	#p() {
		let e = this.#m(), t = this.#n.getContext("2d");
		e !== null && t !== null && ve(t, e, this.#i, window.devicePixelRatio || 1, this.#l);
	}
	#m() {
		let e = this.#a;
		if (e === null) return null;
		let { clientWidth: t, clientHeight: n } = this.#e;
		return {
			planned: e,
			frame: ue(t, n, e.program.ops.length, this.#s * R),
			budget: this.#o,
			highlight: this.#c
		};
	}
	#h(e) {
		(e?.step !== this.#l?.step || e?.tensor !== this.#l?.tensor) && (this.#l = e, this.#p(), C(this.#r, this.#a, e));
	}
	#g(e) {
		let t = this.#m();
		if (t === null) return;
		let n = k(t.frame, e.offsetX, e.offsetY);
		if (n === null) {
			this.#h(null);
			return;
		}
		let { step: r, offset: i } = n;
		this.#h({
			step: r,
			tensor: A(t.planned.program.tensors, r, i)
		});
	}
	#_() {
		let e = this.#a;
		if (e === null) return;
		let t = te(e.program.ops), n = j(e.program.tensors, t), r = n.filter((t) => e.program.tensors[t]?.kept === !1), i = (t) => t.reduce((t, n) => {
			let r = e.program.tensors[n]?.bytes ?? 0;
			return t === null || r > (e.program.tensors[t]?.bytes ?? 0) ? n : t;
		}, null);
		this.#h({
			step: t,
			tensor: i(r) ?? i(n)
		});
	}
	#v(e) {
		let t = this.#a;
		if (t === null || e.altKey || e.ctrlKey || e.metaKey) return;
		let n = t.program.ops.length - 1, r = this.#l ?? {
			step: te(t.program.ops),
			tensor: null
		}, i = e.shiftKey ? Math.max(1, Math.round(n / 20)) : 1, a = {
			ArrowLeft: -i,
			ArrowRight: i,
			Home: -n,
			End: n
		}[e.key], o = {
			ArrowUp: 1,
			ArrowDown: -1
		}[e.key];
		if (e.key === "Escape") this.#h(null);
		else if (a !== void 0) {
			let e = Math.min(n, Math.max(0, r.step + a));
			this.#h({
				step: e,
				tensor: this.#y(t, e, r.tensor)
			});
		} else if (o !== void 0) {
			let e = j(t.program.tensors, r.step), n = r.tensor === null ? 0 : e.indexOf(r.tensor) + o, i = e[Math.min(e.length - 1, Math.max(0, n))] ?? null;
			this.#h({
				step: r.step,
				tensor: i
			});
		} else return;
		e.preventDefault();
	}
	#y(e, t, n) {
		if (n === null) return null;
		let r = e.program.tensors[n]?.offset ?? 0, i = j(e.program.tensors, t);
		return i.includes(n) ? n : A(e.program.tensors, t, r) ?? i.at(-1) ?? null;
	}
}, we = [
	["Batch", ({ batch: e }) => Te(e)],
	["Micro-batch", ({ micro_batch: e, accumulation: t }) => `${e} × ${t}`],
	["Recomputed", ({ checkpoint: e }) => Te(e)],
	["Loss", ({ loss_chunk: e }) => e === 0 ? "in one piece" : `in chunks of ${e}`],
	["Precision", ({ precision: e }) => Te(e)],
	["Optimizer state", ({ optimizer_bits: e }) => Te(e, " bits")],
	["Offloaded", ({ offload: e }) => Ee(e)],
	["Gradients", ({ consume_gradients: e }) => e === !0 ? "consumed as they are made" : "kept for the update"],
	["LoRA rank", ({ lora: e }) => Te(e?.rank)],
	["Frozen", ({ freeze: e }) => Ee(e)]
];
function Te(e, t = "") {
	return e == null ? void 0 : `${e}${t}`;
}
function Ee(e) {
	return Array.isArray(e) && e.length > 0 ? e.join(", ") : "nothing";
}
function De(t, n) {
	let r = (e, t) => e.by_class[t] ?? 0, i = e.filter((e) => r(t, e) > 0 || r(n, e) > 0), a = we.map(([e, r]) => {
		let i = ({ choices: e }) => r(e) ?? "–";
		return {
			name: e,
			first: i(t),
			second: i(n)
		};
	});
	return {
		peak: Oe(t.peak_bytes, n.peak_bytes),
		step: Oe(t.step_s, n.step_s),
		classes: i.map((e) => ({
			name: e,
			...Oe(r(t, e), r(n, e))
		})),
		choices: a.filter((e) => e.first !== e.second)
	};
}
function Oe(e, t) {
	let n = t - e;
	return {
		first: e,
		second: t,
		change: n,
		share: e === 0 ? null : n / e
	};
}
function ke({ change: e, share: t }) {
	return Me(Ne(e, s), t);
}
function Ae({ change: e, share: t }) {
	return Me(Ne(e, d), t);
}
var je = .001;
function Me(e, t) {
	return t === null || Math.abs(t) < je ? e : `${e} (${Ne(t, f)})`;
}
function Ne(e, t) {
	return e === 0 ? "no change" : (e > 0 ? "+" : "−") + t(Math.abs(e));
}
function Pe({ peak: e, step: t }) {
	let n = e.change === 0 ? "as large" : `${s(Math.abs(e.change))} ${e.change < 0 ? "smaller" : "larger"}`, r = Math.abs(t.share ?? 0);
	return `The second plan is ${n} and ${t.change === 0 ? "as fast" : `${f(r)} ${t.change < 0 ? "faster" : "slower"}`}.`;
}
// ../page/src/compare/table.ts
function Fe(e, t, n) {
	let { peak: r, step: i, classes: a, choices: o } = De(e, t), c = [
		Ie(["Peak"], s(r.first), s(r.second), ke(r)),
		...a.map((e) => Ie([p("i", { class: `swatch-${e.name}` }), e.name], s(e.first), s(e.second), ke(e))),
		Ie(["Predicted step"], d(i.first), d(i.second), Ae(i)),
		...o.map((e) => {
			let t = Ie([e.name], e.first, e.second, "");
			return t.className = "choice", t;
		})
	], l = [
		"At the peak",
		...n,
		"Change"
	].map((e) => p("th", { scope: "col" }, e));
	return p("table", {}, p("caption", { class: "unseen" }, "What differs between the two plans"), p("thead", {}, p("tr", {}, ...l)), p("tbody", {}, ...c));
}
function Ie(e, ...t) {
	let n = t.map((e) => p("td", {}, e));
	return p("tr", {}, p("th", { scope: "row" }, ...e), ...n);
}
// src/columns.ts
function Le({ buffer: e, byteOffset: t, byteLength: n }) {
	return e.slice(t, t + n);
}
var Re = (e) => new Float64Array(Le(e)), ze = (e) => new Uint32Array(Le(e)), Be = (e, t) => e[t] ?? 0;
function Ve({ words: e, at: t }) {
	return [...ze(t)].map((t) => e[t] ?? "");
}
function He({ figures: e, ops: t, tensors: n }) {
	return {
		...e,
		program: {
			name: "step",
			ops: Ue(t),
			tensors: We(n)
		}
	};
}
function Ue(e) {
	let [t, n] = [Ve(e.op), Ve(e.phase)], [r, i] = [Re(e.seconds), Re(e.live)];
	return e.name.map((e, a) => ({
		op: t[a] ?? "",
		name: e,
		phase: n[a],
		seconds: Be(r, a),
		live: Be(i, a)
	}));
}
function We(e) {
	let [t, n] = [Ve(e.type), Ve(e.class)], [r, i, a] = [
		Re(e.offset),
		Re(e.bytes),
		Re(e.again_s)
	], [o, s, c] = [
		ze(e.birth),
		ze(e.death),
		ze(e.kept)
	], [l, u] = [ze(e.readers), ze(e.read_by)], d = 0;
	return e.name.map((e, f) => {
		let p = d + Be(l, f), m = {
			name: e,
			type: t[f] ?? "",
			class: n[f],
			offset: Be(r, f),
			bytes: Be(i, f),
			birth: Be(o, f),
			death: Be(s, f),
			kept: Be(c, f) === 1,
			read_by: [...u.subarray(d, p)],
			again_s: Number.isNaN(a[f]) ? null : Be(a, f)
		};
		return d = p, m;
	});
}
// src/compare-view.ts
var Ge = class {
	#e = p("div", {
		class: "detail",
		id: "detail",
		"aria-live": "polite"
	});
	#t = [];
	constructor(e, t) {
		let n = e.get("names"), r = [He(e.get("first")), He(e.get("second"))], i = Math.max(...r.map((e) => e.peak_bytes));
		t.append(p("div", { class: "head" }, p("h2", {}, "Two plans of a training step")), p("p", { class: "why" }, Pe(De(...r))), p("div", { class: "pair" }, ...r.map((e, t) => this.#n(e, n[t] ?? "", i))), p("div", { class: "arena-row" }, p("div", { class: "difference" }, Fe(...r, n)), this.#e));
	}
	restyle() {
		for (let e of this.#t) e.restyle();
	}
	dispose() {
		for (let e of this.#t) e.dispose();
	}
	#n(e, t, n) {
		let r = p("div"), i = p("div", {
			class: "legend",
			role: "group",
			"aria-label": `Bytes at the peak of “${t}”`
		}), a = new Ce(r, this.#e, `Tensors of the plan “${t}”`);
		new _(i, (e) => a.highlight(e)).show(e), a.show(e, e.budget_bytes, n), this.#t.push(a);
		let o = `${s(e.peak_bytes)}, ${d(e.step_s)} a step`, c = p("div", { class: "head" }, p("h3", {}, t), p("p", { class: "unit" }, o));
		return p("section", { "aria-label": t }, c, r, i);
	}
}, Ke = [
	"Tensor",
	"Class",
	"Type",
	"Bytes",
	"Offset",
	"Made by",
	"Last read by"
], qe = class {
	#e;
	#t;
	#n = null;
	#r = !1;
	constructor(e) {
		this.#e = e, this.#t = e.querySelector(".scroll"), e.addEventListener("toggle", () => this.#i());
	}
	show(e) {
		this.#n = e, this.#r = !1, this.#i();
	}
	#i() {
		if (this.#n === null || this.#r || !this.#e.open) return;
		this.#r = !0;
		let { name: e, ops: t, tensors: n } = this.#n.program, r = te(t), i = j(n, r).map((e) => n[e]).sort((e, t) => t.bytes - e.bytes), a = (e) => e === void 0 ? "–" : `${e} ${t[e]?.op ?? ""}`, o = i.map((e) => p("tr", {}, p("td", {}, e.name), p("td", {}, e.class), p("td", {}, e.type), p("td", {}, l(e.bytes)), p("td", {}, l(e.offset)), p("td", {}, e.kept ? "kept" : a(e.birth)), p("td", {}, e.kept ? "kept" : a(e.read_by.at(-1))))), s = `step ${r} (${t[r]?.op ?? ""}) of program “${e}”`, c = `${i.length} tensors alive at ${s}`, u = Ke.map((e) => p("th", { scope: "col" }, e));
		this.#t.replaceChildren(p("table", {}, p("caption", {}, c), p("thead", {}, p("tr", {}, ...u)), p("tbody", {}, ...o)));
	}
};
// src/elements.ts
function Je(e, t, n = "") {
	let r = p("dd", { "data-figure": e }, t);
	return n !== "" && r.append(p("small", {}, n)), p("div", {}, p("dt", {}, e), r);
}
// src/tables.ts
function Ye(e) {
	let t = {
		class: "scroll",
		tabindex: 0,
		role: "region",
		"aria-label": e
	};
	return p("details", { class: "peak-table" }, p("summary", {}, e), p("div", t));
}
function Xe(e, t) {
	let n = e.map((e) => p("th", { scope: "col" }, e)), r = t.map(([e = "", ...t]) => p("tr", {}, p("th", { scope: "row" }, e), ...t.map((e) => p("td", {}, e))));
	return p("table", { class: "numbers" }, p("thead", {}, p("tr", {}, ...n)), p("tbody", {}, ...r));
}
function Ze({ by_class: t, gap_bytes: n, peak_bytes: r }) {
	let i = (e, t) => [
		e,
		l(t),
		s(t),
		f(t / r)
	], a = e.filter((e) => (t[e] ?? 0) > 0).map((e) => i(p("span", {}, p("i", { class: `swatch-${e}` }), e), t[e]));
	return a.push(i(p("span", {}, "gaps and alignment"), n), i(p("span", {}, "peak"), r)), Xe([
		"Class",
		"Bytes",
		"",
		"Of the peak"
	], a);
}
function Qe({ layers: e }) {
	return Xe([
		"Block",
		"Weights",
		"Gradients",
		"Optimizer",
		"Kept",
		"Forward",
		"Backward",
		"Recompute",
		"Update"
	], e.map((e) => {
		let t = [
			e.weight,
			e.gradient,
			e.optimizer,
			e.kept
		].map(s), n = [
			e.forward_s,
			e.backward_s,
			e.recompute_s,
			e.update_s
		];
		return [
			$e(e),
			...t,
			...n.map((e) => e > 0 ? d(e) : "–")
		];
	}));
}
function $e({ blocks: e }) {
	if (e === null) return "outside of blocks";
	let [t, n] = e;
	return t === n ? `${t}` : `${t} to ${n}, each`;
}
// src/plan-view.ts
var et = 200, tt = 2e3, nt = class {
	#e;
	#t = p("input", {
		type: "range",
		id: "budget",
		min: 0,
		max: et,
		step: 1
	});
	#n = p("output", { for: "budget" });
	#r = p("p", { class: "unit" });
	#i = p("p", { class: "why" });
	#a = p("div", {
		class: "refusal",
		role: "alert",
		hidden: !0
	});
	#o = p("dl", { class: "figures" });
	#s = p("div", {
		class: "detail",
		id: "detail",
		"aria-live": "polite"
	});
	#c = Ye("Bytes at the peak by class");
	#l = Ye("Bytes and predicted time by layer");
	#u = Ye("Tensors alive at the peak");
	#d;
	#f;
	#p;
	#m = () => this.#S();
	#h = () => this.#x(this.#e.get("error"));
	#g;
	#_ = 0;
	constructor(e, t) {
		this.#e = e, this.#g = He(e.get("plan"));
		let n = p("div"), r = p("div", {
			class: "legend",
			role: "group",
			"aria-label": "Bytes at the peak, by class"
		});
		t.append(p("div", { class: "head" }, p("h2", {}, "Memory of a training step"), this.#r), p("div", { class: "budget" }, p("label", { for: "budget" }, "Budget"), this.#t, this.#n), this.#a, this.#o, this.#i, p("div", { class: "arena-row" }, p("div", {}, n, r), this.#s), p("div", { class: "tables" }, this.#c, this.#l, this.#u)), this.#d = new Ce(n, this.#s), this.#f = new _(r, (e) => this.#d.highlight(e)), this.#p = new qe(this.#u), this.#t.addEventListener("input", () => this.#y()), e.on("change:plan", this.#m), e.on("change:error", this.#h), this.#v(), this.#S();
	}
	restyle() {
		this.#d.restyle();
	}
	dispose() {
		clearTimeout(this.#_), this.#e.off("change:plan", this.#m), this.#e.off("change:error", this.#h), this.#d.dispose();
	}
	#v() {
		let [e, t] = this.#e.get("range"), n = t - e, r = this.#e.get("budget") ?? this.#g.budget_bytes ?? t;
		this.#t.disabled = n <= 0;
		let i = n > 0 ? (r - e) / n * et : et;
		this.#t.value = String(Math.min(et, Math.max(0, Math.round(i)))), this.#b(Math.min(r, Math.max(t, this.#g.peak_bytes)));
	}
	#y() {
		let [e, t] = this.#e.get("range"), n = Math.round(e + (t - e) * Number(this.#t.value) / et);
		this.#b(n), this.#e.set("budget", n), this.#e.save_changes(), clearTimeout(this.#_), this.#_ = window.setTimeout(() => {
			this.#x("The kernel doesn’t answer: it’s at work or gone. The map still shows the plan before.");
		}, tt);
	}
	#b(e) {
		h(this.#n, s(e)), this.#t.setAttribute("aria-valuetext", s(e));
	}
	#x(e) {
		clearTimeout(this.#_), this.#a.hidden = e === "", this.#a.replaceChildren(p("p", {}, e));
	}
	#S() {
		let e = He(this.#e.get("plan"));
		this.#g = e, this.#x(this.#e.get("error"));
		let t = d(e.plan_ms / 1e3), { ops: n, tensors: r } = e.program, i = `${u(e.parameters)} parameters · ${n.length} ops · ${r.length} tensors`;
		h(this.#r, `${i} · planned in ${t}`);
		let a = [e.why === "" ? "" : `The peak is ${e.why}.`, at(e)].join(" ");
		this.#i.replaceChildren(...m(a)), this.#d.show(e, e.budget_bytes, Math.max(this.#e.get("range")[1], e.peak_bytes)), this.#f.show(e), this.#p.show(e), this.#c.querySelector(".scroll")?.replaceChildren(Ze(e)), this.#l.querySelector(".scroll")?.replaceChildren(Qe(e)), this.#o.replaceChildren(...rt(e));
	}
};
function rt(e) {
	let { choices: t } = e, { ops: n } = e.program, r = n.filter(({ phase: e }) => e === "recompute").length;
	return [
		Je("Predicted peak", s(e.peak_bytes), `${l(e.peak_bytes)} B`),
		Je("Lower bound", s(e.lower_bound_bytes), `${l(e.lower_bound_bytes)} B`),
		Je("Predicted step", d(e.step_s)),
		Je("Micro-batch", `${t.micro_batch} × ${t.accumulation}`, t.accumulation > 1 ? `the map shows one of ${t.accumulation} passes` : "in one pass"),
		Je("Recomputed", it(t.checkpoint) ? `${r} of ${n.length} ops` : t.checkpoint, t.loss_chunk === 0 ? "loss in one piece" : `loss in chunks of ${t.loss_chunk}`)
	];
}
var it = (e) => e.includes("×");
function at({ choices: { checkpoint: e } }) {
	return it(e) ? `The backward pass computes again: ${e}.` : "";
}
// ../page/node_modules/uplot/dist/uPlot.esm.js
var ot = !0, st = "uplot", ct = "u-hz", lt = "u-vt", ut = "u-title", dt = "u-wrap", ft = "u-under", pt = "u-over", mt = "u-axis", ht = "u-off", gt = "u-select", _t = "u-cursor-x", vt = "u-cursor-y", yt = "u-cursor-pt", bt = "u-legend", xt = "u-live", St = "u-inline", Ct = "u-series", wt = "u-marker", Tt = "u-label", Et = "u-value", Dt = "width", Ot = "height", kt = "top", At = "bottom", jt = "left", Mt = "right", Nt = "#000", Pt = "#0000", Ft = "mousemove", It = "mousedown", Lt = "mouseup", Rt = "mouseenter", zt = "mouseleave", Bt = "dblclick", Vt = "resize", Ht = "scroll", Ut = "change", Wt = "dppxchange", Gt = "--", Kt = typeof window < "u", qt = Kt ? document : null, Jt = Kt ? window : null, Yt = Kt ? navigator : null, z, Xt;
function Zt() {
	let e = devicePixelRatio;
	z != e && (z = e, Xt && fn(Ut, Xt, Zt), Xt = matchMedia(`(min-resolution: ${z - .001}dppx) and (max-resolution: ${z + .001}dppx)`), dn(Ut, Xt, Zt), Jt.dispatchEvent(new CustomEvent(Wt)));
}
function Qt(e, t) {
	if (t != null) {
		let n = e.classList;
		!n.contains(t) && n.add(t);
	}
}
function $t(e, t) {
	let n = e.classList;
	n.contains(t) && n.remove(t);
}
function B(e, t, n) {
	e.style[t] = n + "px";
}
function en(e, t, n, r) {
	let i = qt.createElement(e);
	return t != null && Qt(i, t), n?.insertBefore(i, r), i;
}
function tn(e, t) {
	return en("div", e, t);
}
var nn = /* @__PURE__ */ new WeakMap();
function rn(e, t, n, r, i) {
	let a = "translate(" + t + "px," + n + "px)";
	a != nn.get(e) && (e.style.transform = a, nn.set(e, a), t < 0 || n < 0 || t > r || n > i ? Qt(e, ht) : $t(e, ht));
}
var an = /* @__PURE__ */ new WeakMap();
function on(e, t, n) {
	let r = t + n;
	r != an.get(e) && (an.set(e, r), e.style.background = t, e.style.borderColor = n);
}
var sn = /* @__PURE__ */ new WeakMap();
function cn(e, t, n, r) {
	let i = t + "" + n;
	i != sn.get(e) && (sn.set(e, i), e.style.height = n + "px", e.style.width = t + "px", e.style.marginLeft = r ? -t / 2 + "px" : 0, e.style.marginTop = r ? -n / 2 + "px" : 0);
}
var ln = { passive: !0 }, un = {
	...ln,
	capture: !0
};
function dn(e, t, n, r) {
	t.addEventListener(e, n, r ? un : ln);
}
function fn(e, t, n, r) {
	t.removeEventListener(e, n, ln);
}
Kt && Zt();
function pn(e, t, n, r) {
	let i;
	n ||= 0, r ||= t.length - 1;
	let a = r <= 2147483647;
	for (; r - n > 1;) i = a ? n + r >> 1 : Pn((n + r) / 2), t[i] < e ? n = i : r = i;
	return e - t[n] <= t[r] - e ? n : r;
}
function mn(e) {
	return (t, n, r) => {
		let i = -1, a = -1;
		for (let a = n; a <= r; a++) if (e(t[a])) {
			i = a;
			break;
		}
		for (let i = r; i >= n; i--) if (e(t[i])) {
			a = i;
			break;
		}
		return [i, a];
	};
}
var hn = (e) => e != null, gn = (e) => e != null && e > 0, _n = mn(hn), vn = mn(gn);
function yn(e, t, n, r = 0, i = !1) {
	let a = i ? vn : _n, o = i ? gn : hn;
	[t, n] = a(e, t, n);
	let s = e[t], c = e[t];
	if (t > -1) {
		if (r == 1) s = e[t], c = e[n];
		else if (r == -1) s = e[n], c = e[t];
		else for (let r = t; r <= n; r++) {
			let t = e[r];
			o(t) && (t < s ? s = t : t > c && (c = t));
		}
	}
	return [s ?? H, c ?? -H];
}
function bn(e, t, n, r) {
	let i = Bn(e), a = Bn(t);
	e == t && (i == -1 ? (e *= n, t /= n) : (e /= n, t *= n));
	let o = n == 10 ? Vn : Hn, s = i == 1 ? Pn : In, c = a == 1 ? In : Pn, l = s(o(Nn(e))), u = c(o(Nn(t))), d = zn(n, l), f = zn(n, u);
	return n == 10 && (l < 0 && (d = W(d, -l)), u < 0 && (f = W(f, -u))), r || n == 2 ? (e = d * i, t = f * a) : (e = ir(e, d), t = rr(t, f)), [e, t];
}
function xn(e, t, n, r) {
	let i = bn(e, t, n, r);
	return e == 0 && (i[0] = 0), t == 0 && (i[1] = 0), i;
}
var Sn = .1, Cn = {
	mode: 3,
	pad: Sn
}, wn = {
	pad: 0,
	soft: null,
	mode: 0
}, Tn = {
	min: wn,
	max: wn
};
function En(e, t, n, r) {
	return hr(n) ? On(e, t, n) : (wn.pad = n, wn.soft = r ? 0 : null, wn.mode = r ? 3 : 0, On(e, t, Tn));
}
function V(e, t) {
	return e ?? t;
}
function Dn(e, t, n) {
	for (t = V(t, 0), n = V(n, e.length - 1); t <= n;) {
		if (e[t] != null) return !0;
		t++;
	}
	return !1;
}
function On(e, t, n) {
	let r = n.min, i = n.max, a = V(r.pad, 0), o = V(i.pad, 0), s = V(r.hard, -H), c = V(i.hard, H), l = V(r.soft, H), u = V(i.soft, -H), d = V(r.mode, 0), f = V(i.mode, 0), p = t - e, m = Vn(p), h = Rn(Nn(e), Nn(t)), g = Nn(Vn(h) - m);
	(p < 1e-24 || g > 10) && (p = 0, (e == 0 || t == 0) && (p = 1e-24, d == 2 && l != H && (a = 0), f == 2 && u != -H && (o = 0)));
	let _ = p || h || 1e3, v = zn(10, Pn(Vn(_))), y = W(ir(e - _ * (p == 0 ? e == 0 ? .1 : 1 : a), v / 10), 24), b = e >= l && (d == 1 || d == 3 && y <= l || d == 2 && y >= l) ? l : H, x = Rn(s, y < b && e >= b ? b : Ln(b, y)), S = W(rr(t + _ * (p == 0 ? t == 0 ? .1 : 1 : o), v / 10), 24), C = t <= u && (f == 1 || f == 3 && S >= u || f == 2 && S <= u) ? u : -H, w = Ln(c, S > C && t <= C ? C : Rn(C, S));
	return x == w && x == 0 && (w = 100), [x, w];
}
var kn = new Intl.NumberFormat(Kt ? Yt.language : "en-US"), An = (e) => kn.format(e), jn = Math, Mn = jn.PI, Nn = jn.abs, Pn = jn.floor, Fn = jn.round, In = jn.ceil, Ln = jn.min, Rn = jn.max, zn = jn.pow, Bn = jn.sign, Vn = jn.log10, Hn = jn.log2, Un = (e, t = 1) => jn.sinh(e) * t, Wn = (e, t = 1) => jn.asinh(e / t), H = Infinity;
function Gn(e) {
	return (Vn((e ^ e >> 31) - (e >> 31)) | 0) + 1;
}
function Kn(e, t, n) {
	return Ln(Rn(e, t), n);
}
function qn(e) {
	return typeof e == "function";
}
function U(e) {
	return qn(e) ? e : () => e;
}
var Jn = () => {}, Yn = (e) => e, Xn = (e, t) => t, Zn = (e) => null, Qn = (e) => !0, $n = (e, t) => e == t, er = /\.\d*?(?=9{6,}|0{6,})/gm, tr = (e) => {
	if (fr(e) || ar.has(e)) return e;
	let t = `${e}`, n = t.match(er);
	if (n == null) return e;
	let r = n[0].length - 1;
	if (t.indexOf("e-") != -1) {
		let [e, n] = t.split("e");
		return +`${tr(e)}e${n}`;
	}
	return W(e, r);
};
function nr(e, t) {
	return tr(W(tr(e / t)) * t);
}
function rr(e, t) {
	return tr(In(tr(e / t)) * t);
}
function ir(e, t) {
	return tr(Pn(tr(e / t)) * t);
}
function W(e, t = 0) {
	if (fr(e)) return e;
	let n = 10 ** t;
	return Fn(e * n * (1 + 2 ** -52)) / n;
}
var ar = /* @__PURE__ */ new Map();
function or(e) {
	return (("" + e).split(".")[1] || "").length;
}
function sr(e, t, n, r) {
	let i = [], a = r.map(or);
	for (let o = t; o < n; o++) {
		let t = Nn(o), n = W(zn(e, o), t);
		for (let s = 0; s < r.length; s++) {
			let c = e == 10 ? +`${r[s]}e${o}` : r[s] * n, l = (o >= 0 ? 0 : t) + (o >= a[s] ? 0 : a[s]), u = e == 10 ? c : W(c, l);
			i.push(u), ar.set(u, l);
		}
	}
	return i;
}
var cr = {}, lr = [], ur = [null, null], dr = Array.isArray, fr = Number.isInteger, pr = (e) => e === void 0;
function mr(e) {
	return typeof e == "string";
}
function hr(e) {
	let t = !1;
	if (e != null) {
		let n = e.constructor;
		t = n == null || n == Object;
	}
	return t;
}
function gr(e) {
	return typeof e == "object" && !!e;
}
var _r = Object.getPrototypeOf(Uint8Array), vr = "__proto__";
function yr(e, t = hr) {
	let n;
	if (dr(e)) {
		let r = e.find((e) => e != null);
		if (dr(r) || t(r)) {
			n = Array(e.length);
			for (let r = 0; r < e.length; r++) n[r] = yr(e[r], t);
		} else n = e.slice();
	} else if (e instanceof _r) n = e.slice();
	else if (t(e)) {
		n = {};
		for (let r in e) r != vr && (n[r] = yr(e[r], t));
	} else n = e;
	return n;
}
function G(e) {
	let t = arguments;
	for (let n = 1; n < t.length; n++) {
		let r = t[n];
		for (let t in r) t != vr && (hr(e[t]) ? G(e[t], yr(r[t])) : e[t] = yr(r[t]));
	}
	return e;
}
var br = 0, xr = 1, Sr = 2;
function Cr(e, t, n) {
	for (let r = 0, i, a = -1; r < t.length; r++) {
		let o = t[r];
		if (o > a) {
			for (i = o - 1; i >= 0 && e[i] == null;) e[i--] = null;
			for (i = o + 1; i < n && e[i] == null;) e[a = i++] = null;
		}
	}
}
function wr(e, t) {
	if (Dr(e)) {
		let t = e[0].slice();
		for (let n = 1; n < e.length; n++) t.push(...e[n].slice(1));
		return Or(t[0]) || (t = Er(t)), t;
	}
	let n = /* @__PURE__ */ new Set();
	for (let t = 0; t < e.length; t++) {
		let r = e[t][0], i = r.length;
		for (let e = 0; e < i; e++) n.add(r[e]);
	}
	let r = [Array.from(n).sort((e, t) => e - t)], i = r[0].length, a = /* @__PURE__ */ new Map();
	for (let e = 0; e < i; e++) a.set(r[0][e], e);
	for (let n = 0; n < e.length; n++) {
		let o = e[n], s = o[0];
		for (let e = 1; e < o.length; e++) {
			let c = o[e], l = Array(i).fill(void 0), u = t ? t[n][e] : xr, d = [];
			for (let e = 0; e < c.length; e++) {
				let t = c[e], n = a.get(s[e]);
				t === null ? u != br && (l[n] = t, u == Sr && d.push(n)) : l[n] = t;
			}
			Cr(l, d, i), r.push(l);
		}
	}
	return r;
}
var Tr = typeof queueMicrotask > "u" ? (e) => Promise.resolve().then(e) : queueMicrotask;
function Er(e) {
	let t = e[0], n = t.length, r = Array(n);
	for (let e = 0; e < r.length; e++) r[e] = e;
	r.sort((e, n) => t[e] - t[n]);
	let i = [];
	for (let t = 0; t < e.length; t++) {
		let a = e[t], o = Array(n);
		for (let e = 0; e < n; e++) o[e] = a[r[e]];
		i.push(o);
	}
	return i;
}
function Dr(e) {
	let t = e[0][0], n = t.length;
	for (let r = 1; r < e.length; r++) {
		let i = e[r][0];
		if (i.length != n) return !1;
		if (i != t) {
			for (let e = 0; e < n; e++) if (i[e] != t[e]) return !1;
		}
	}
	return !0;
}
function Or(e, t = 100) {
	let n = e.length;
	if (n <= 1) return !0;
	let r = 0, i = n - 1;
	for (; r <= i && e[r] == null;) r++;
	for (; i >= r && e[i] == null;) i--;
	if (i <= r) return !0;
	let a = Rn(1, Pn((i - r + 1) / t));
	for (let t = e[r], n = r + a; n <= i; n += a) {
		let r = e[n];
		if (r != null) {
			if (r <= t) return !1;
			t = r;
		}
	}
	return !0;
}
var kr = [
	"January",
	"February",
	"March",
	"April",
	"May",
	"June",
	"July",
	"August",
	"September",
	"October",
	"November",
	"December"
], Ar = [
	"Sunday",
	"Monday",
	"Tuesday",
	"Wednesday",
	"Thursday",
	"Friday",
	"Saturday"
];
function jr(e) {
	return e.slice(0, 3);
}
var Mr = Ar.map(jr), Nr = {
	MMMM: kr,
	MMM: kr.map(jr),
	WWWW: Ar,
	WWW: Mr
};
function Pr(e) {
	return (e < 10 ? "0" : "") + e;
}
function Fr(e) {
	return (e < 10 ? "00" : e < 100 ? "0" : "") + e;
}
var Ir = {
	YYYY: (e) => e.getFullYear(),
	YY: (e) => (e.getFullYear() + "").slice(2),
	MMMM: (e, t) => t.MMMM[e.getMonth()],
	MMM: (e, t) => t.MMM[e.getMonth()],
	MM: (e) => Pr(e.getMonth() + 1),
	M: (e) => e.getMonth() + 1,
	DD: (e) => Pr(e.getDate()),
	D: (e) => e.getDate(),
	WWWW: (e, t) => t.WWWW[e.getDay()],
	WWW: (e, t) => t.WWW[e.getDay()],
	HH: (e) => Pr(e.getHours()),
	H: (e) => e.getHours(),
	h: (e) => {
		let t = e.getHours();
		return t == 0 ? 12 : t > 12 ? t - 12 : t;
	},
	AA: (e) => e.getHours() >= 12 ? "PM" : "AM",
	aa: (e) => e.getHours() >= 12 ? "pm" : "am",
	a: (e) => e.getHours() >= 12 ? "p" : "a",
	mm: (e) => Pr(e.getMinutes()),
	m: (e) => e.getMinutes(),
	ss: (e) => Pr(e.getSeconds()),
	s: (e) => e.getSeconds(),
	fff: (e) => Fr(e.getMilliseconds())
};
function Lr(e, t) {
	t ||= Nr;
	let n = [], r = /\{([a-z]+)\}|[^{]+/gi, i;
	for (; i = r.exec(e);) n.push(i[0][0] == "{" ? Ir[i[1]] : i[0]);
	return (e) => {
		let r = "";
		for (let i = 0; i < n.length; i++) r += typeof n[i] == "string" ? n[i] : n[i](e, t);
		return r;
	};
}
var Rr = new Intl.DateTimeFormat().resolvedOptions().timeZone;
function zr(e, t) {
	let n;
	return t == "UTC" || t == "Etc/UTC" ? n = /* @__PURE__ */ new Date(+e + e.getTimezoneOffset() * 6e4) : t == Rr ? n = e : (n = new Date(e.toLocaleString("en-US", { timeZone: t })), n.setMilliseconds(e.getMilliseconds())), n;
}
var K = (e) => e % 1 == 0, q = [
	1,
	2,
	2.5,
	5
], Br = sr(10, -32, 0, q), Vr = sr(10, 0, 32, q), Hr = Vr.filter(K), Ur = Br.concat(Vr), J = "\n", Y = "{YYYY}", X = J + Y, Wr = "{M}/{D}", Gr = J + Wr, Kr = Gr + "/{YY}", qr = "{aa}", Jr = "{h}:{mm}" + qr, Yr = J + Jr, Xr = ":{ss}", Z = null;
function Zr(e) {
	let t = e * 1e3, n = t * 60, r = n * 60, i = r * 24, a = i * 30, o = i * 365, s = (e == 1 ? sr(10, 0, 3, q).filter(K) : sr(10, -3, 0, q)).concat([
		t,
		t * 5,
		t * 10,
		t * 15,
		t * 30,
		n,
		n * 5,
		n * 10,
		n * 15,
		n * 30,
		r,
		r * 2,
		r * 3,
		r * 4,
		r * 6,
		r * 8,
		r * 12,
		i,
		i * 2,
		i * 3,
		i * 4,
		i * 5,
		i * 6,
		i * 7,
		i * 8,
		i * 9,
		i * 10,
		i * 15,
		a,
		a * 2,
		a * 3,
		a * 4,
		a * 6,
		o,
		o * 2,
		o * 5,
		o * 10,
		o * 25,
		o * 50,
		o * 100
	]), c = [
		[
			o,
			Y,
			Z,
			Z,
			Z,
			Z,
			Z,
			Z,
			1
		],
		[
			i * 28,
			"{MMM}",
			X,
			Z,
			Z,
			Z,
			Z,
			Z,
			1
		],
		[
			i,
			Wr,
			X,
			Z,
			Z,
			Z,
			Z,
			Z,
			1
		],
		[
			r,
			"{h}" + qr,
			Kr,
			Z,
			Gr,
			Z,
			Z,
			Z,
			1
		],
		[
			n,
			Jr,
			Kr,
			Z,
			Gr,
			Z,
			Z,
			Z,
			1
		],
		[
			t,
			Xr,
			Kr + " " + Jr,
			Z,
			Gr + " " + Jr,
			Z,
			Yr,
			Z,
			1
		],
		[
			e,
			Xr + ".{fff}",
			Kr + " " + Jr,
			Z,
			Gr + " " + Jr,
			Z,
			Yr,
			Z,
			1
		]
	];
	function l(t) {
		return (s, c, l, u, d, f) => {
			let p = [], m = d >= o, h = d >= a && d < o, g = t(l), _ = W(g * e, 3), v = si(g.getFullYear(), m ? 0 : g.getMonth(), h || m ? 1 : g.getDate()), y = W(v * e, 3);
			if (h || m) {
				let n = h ? d / a : 0, r = m ? d / o : 0, i = _ == y ? _ : W(si(v.getFullYear() + r, v.getMonth() + n, 1) * e, 3), s = new Date(Fn(i / e)), c = s.getFullYear(), l = s.getMonth();
				for (let a = 0; i <= u; a++) {
					let o = si(c + r * a, l + n * a, 1), s = o - t(W(o * e, 3));
					i = W((+o + s) * e, 3), i <= u && p.push(i);
				}
			} else {
				let a = d >= i ? i : d, o = y + (Pn(l) - Pn(_)) + rr(_ - y, a);
				p.push(o);
				let m = t(o), h = m.getHours() + m.getMinutes() / n + m.getSeconds() / r, g = d / r, v = f / s.axes[c]._space;
				for (; o = W(o + d, e == 1 ? 0 : 3), !(o > u);) if (g > 1) {
					let e = Pn(W(h + g, 6)) % 24, n = t(o).getHours() - e;
					n > 1 && (n = -1), o -= n * r, h = (h + g) % 24;
					let i = p[p.length - 1];
					W((o - i) / d, 3) * v >= .7 && p.push(o);
				} else p.push(o);
			}
			return p;
		};
	}
	return [
		s,
		c,
		l
	];
}
var [Qr, $r, ei] = Zr(1), [ti, ni, ri] = Zr(.001);
sr(2, -53, 53, [1]);
function ii(e, t) {
	return e.map((e) => e.map((n, r) => r == 0 || r == 8 || n == null ? n : t(r == 1 || e[8] == 0 ? n : e[1] + n)));
}
function ai(e, t) {
	return (n, r, i, a, o) => {
		let s = t.find((e) => o >= e[0]) || t[t.length - 1], c, l, u, d, f, p;
		return r.map((t) => {
			let n = e(t), r = n.getFullYear(), i = n.getMonth(), a = n.getDate(), o = n.getHours(), m = n.getMinutes(), h = n.getSeconds(), g = r != c && s[2] || i != l && s[3] || a != u && s[4] || o != d && s[5] || m != f && s[6] || h != p && s[7] || s[1];
			return c = r, l = i, u = a, d = o, f = m, p = h, g(n);
		});
	};
}
function oi(e, t) {
	let n = Lr(t);
	return (t, r, i, a, o) => r.map((t) => n(e(t)));
}
function si(e, t, n) {
	return new Date(e, t, n);
}
function ci(e, t) {
	return t(e);
}
var li = "{YYYY}-{MM}-{DD} {h}:{mm}{aa}";
function ui(e, t) {
	return (n, r, i, a) => a == null ? Gt : t(e(r));
}
function di(e, t) {
	let n = e.series[t];
	return n.width ? n.stroke(e, t) : n.points.width ? n.points.stroke(e, t) : null;
}
function fi(e, t) {
	return e.series[t].fill(e, t);
}
var pi = {
	show: !0,
	live: !0,
	isolate: !1,
	mount: Jn,
	markers: {
		show: !0,
		width: 2,
		stroke: di,
		fill: fi,
		dash: "solid"
	},
	idx: null,
	idxs: null,
	values: []
};
function mi(e, t) {
	let n = e.cursor.points, r = tn(), i = n.size(e, t);
	B(r, Dt, i), B(r, Ot, i);
	let a = i / -2;
	B(r, "marginLeft", a), B(r, "marginTop", a);
	let o = n.width(e, t, i);
	return o && B(r, "borderWidth", o), r;
}
function hi(e, t) {
	let n = e.series[t].points;
	return n._fill || n._stroke;
}
function gi(e, t) {
	let n = e.series[t].points;
	return n._stroke || n._fill;
}
function _i(e, t) {
	return e.series[t].points.size;
}
var vi = [0, 0];
function yi(e, t, n) {
	return vi[0] = t, vi[1] = n, vi;
}
function bi(e, t, n, r = !0) {
	return (e) => {
		e.button != 0 || r && e.target != t || n(e);
	};
}
function xi(e, t, n, r = !0) {
	return (e) => {
		r && e.target != t || n(e);
	};
}
var Si = {
	show: !0,
	x: !0,
	y: !0,
	lock: !1,
	move: yi,
	points: {
		one: !1,
		show: mi,
		size: _i,
		width: 0,
		stroke: gi,
		fill: hi
	},
	bind: {
		mousedown: bi,
		mouseup: bi,
		click: bi,
		dblclick: bi,
		mousemove: xi,
		mouseleave: xi,
		mouseenter: xi
	},
	drag: {
		setScale: !0,
		x: !0,
		y: !1,
		dist: 0,
		uni: null,
		click: (e, t) => {
			t.stopPropagation(), t.stopImmediatePropagation();
		},
		_x: !1,
		_y: !1
	},
	focus: {
		dist: (e, t, n, r, i) => r - i,
		prox: -1,
		bias: 0
	},
	hover: {
		skip: [void 0],
		prox: null,
		bias: 0
	},
	left: -10,
	top: -10,
	idx: null,
	dataIdx: null,
	idxs: null,
	event: null
}, Ci = {
	show: !0,
	stroke: "rgba(0,0,0,0.07)",
	width: 2
}, wi = G({}, Ci, { filter: Xn }), Ti = G({}, wi, { size: 10 }), Ei = G({}, Ci, { show: !1 }), Di = "12px system-ui, -apple-system, \"Segoe UI\", Roboto, \"Helvetica Neue\", Arial, \"Noto Sans\", sans-serif, \"Apple Color Emoji\", \"Segoe UI Emoji\", \"Segoe UI Symbol\", \"Noto Color Emoji\"", Oi = "bold " + Di, ki = 1.5, Ai = {
	show: !0,
	scale: "x",
	stroke: Nt,
	space: 50,
	gap: 5,
	alignTo: 1,
	size: 50,
	labelGap: 0,
	labelSize: 30,
	labelFont: Oi,
	side: 2,
	grid: wi,
	ticks: Ti,
	border: Ei,
	font: Di,
	lineGap: ki,
	rotate: 0
}, ji = "Value", Mi = "Time", Ni = {
	show: !0,
	scale: "x",
	auto: !1,
	sorted: 1,
	min: H,
	max: -Infinity,
	idxs: []
};
function Pi(e, t, n, r, i) {
	return t.map((e) => e == null ? "" : An(e));
}
function Fi(e, t, n, r, i, a, o) {
	let s = [], c = ar.get(i) || 0;
	n = o ? n : W(rr(n, i), c);
	for (let e = n; e <= r; e = W(e + i, c)) s.push(Object.is(e, -0) ? 0 : e);
	return s;
}
function Ii(e, t, n, r, i, a, o) {
	let s = [], c = e.scales[e.axes[t].scale].log;
	i = zn(c, Pn((c == 10 ? Vn : Hn)(n))), c == 10 && (i = Ur[pn(i, Ur)]);
	let l = n, u = i * c;
	c == 10 && (u = Ur[pn(u, Ur)]);
	do
		s.push(l), l += i, c == 10 && !ar.has(l) && (l = W(l, ar.get(i))), l >= u && (i = l, u = i * c, c == 10 && (u = Ur[pn(u, Ur)]));
	while (l <= r);
	return s;
}
function Li(e, t, n, r, i, a, o) {
	let s = e.scales[e.axes[t].scale].asinh, c = r > s ? Ii(e, t, Rn(s, n), r, i) : [s], l = r >= 0 && n <= 0 ? [0] : [];
	return (n < -s ? Ii(e, t, Rn(s, -r), -n, i) : [s]).reverse().map((e) => -e).concat(l, c);
}
var Ri = /./, zi = /[12357]/, Bi = /[125]/, Vi = /1/, Hi = (e, t, n, r) => e.map((e, i) => t == 4 && e == 0 || i % r == 0 && n.test(e.toExponential()[+(e < 0)]) ? e : null);
function Ui(e, t, n, r, i) {
	let a = e.axes[n], o = a.scale, s = e.scales[o], c = e.valToPos, l = a._space, u = c(10, o), d = c(9, o) - u >= l ? Ri : c(7, o) - u >= l ? zi : c(5, o) - u >= l ? Bi : Vi;
	if (d == Vi) {
		let e = Nn(c(1, o) - u);
		if (e < l) return Hi(t.slice().reverse(), s.distr, d, In(l / e)).reverse();
	}
	return Hi(t, s.distr, d, 1);
}
function Wi(e, t, n, r, i) {
	let a = e.axes[n], o = a.scale, s = a._space, c = e.valToPos, l = Nn(c(1, o) - c(2, o));
	return l < s ? Hi(t.slice().reverse(), 3, Ri, In(s / l)).reverse() : t;
}
function Gi(e, t, n, r) {
	return r == null ? Gt : t == null ? "" : An(t);
}
var Ki = {
	show: !0,
	scale: "y",
	stroke: Nt,
	space: 30,
	gap: 5,
	alignTo: 1,
	size: 50,
	labelGap: 0,
	labelSize: 30,
	labelFont: Oi,
	side: 3,
	grid: wi,
	ticks: Ti,
	border: Ei,
	font: Di,
	lineGap: ki,
	rotate: 0
};
function qi(e, t) {
	return W((3 + (e || 1) * 2) * t, 3);
}
function Ji(e, t) {
	let { scale: n, idxs: r } = e.series[0], i = e._data[0], a = e.valToPos(i[r[0]], n, !0), o = Nn(e.valToPos(i[r[1]], n, !0) - a) / (e.series[t].points.space * z);
	return r[1] - r[0] <= o;
}
var Yi = {
	scale: null,
	auto: !0,
	sorted: 0,
	min: H,
	max: -Infinity
}, Xi = (e, t, n, r, i) => i, Zi = {
	show: !0,
	auto: !0,
	sorted: 0,
	gaps: Xi,
	alpha: 1,
	facets: [G({}, Yi, { scale: "x" }), G({}, Yi, { scale: "y" })]
}, Qi = {
	scale: "y",
	auto: !0,
	sorted: 0,
	show: !0,
	spanGaps: !1,
	gaps: Xi,
	alpha: 1,
	points: {
		show: Ji,
		filter: null
	},
	values: null,
	min: H,
	max: -Infinity,
	idxs: [],
	path: null,
	clip: null
};
function $i(e, t, n, r, i) {
	return n / 10;
}
var ea = {
	time: ot,
	auto: !0,
	distr: 1,
	log: 10,
	asinh: 1,
	min: null,
	max: null,
	dir: 1,
	ori: 0
}, ta = G({}, ea, {
	time: !1,
	ori: 1
}), na = {};
function ra(e, t) {
	let n = na[e];
	return n || (n = {
		key: e,
		plots: [],
		sub(e) {
			n.plots.push(e);
		},
		unsub(e) {
			n.plots = n.plots.filter((t) => t != e);
		},
		pub(e, t, r, i, a, o, s) {
			for (let c = 0; c < n.plots.length; c++) n.plots[c] != t && n.plots[c].pub(e, t, r, i, a, o, s);
		}
	}, e != null && (na[e] = n)), n;
}
var ia = 1, aa = 2;
function oa(e, t, n) {
	let r = e.mode, i = e.series[t], a = r == 2 ? e._data[t] : e._data, o = e.scales, s = e.bbox, c = a[0], l = r == 2 ? a[1] : a[t], u = r == 2 ? o[i.facets[0].scale] : o[e.series[0].scale], d = r == 2 ? o[i.facets[1].scale] : o[i.scale], f = s.left, p = s.top, m = s.width, h = s.height, g = e.valToPosH, _ = e.valToPosV;
	return u.ori == 0 ? n(i, c, l, u, d, g, _, f, p, m, h, $, ha, _a, ya, xa) : n(i, c, l, u, d, _, g, p, f, h, m, ma, ga, va, ba, Sa);
}
function sa(e, t) {
	let n = 0, r = 0, i = V(e.bands, lr);
	for (let e = 0; e < i.length; e++) {
		let a = i[e];
		a.series[0] == t ? n = a.dir : a.series[1] == t && (a.dir == 1 ? r |= 1 : r |= 2);
	}
	return [n, r == 1 ? -1 : r == 2 ? 1 : r == 3 ? 2 : 0];
}
function ca(e, t, n, r, i) {
	let a = e.mode, o = e.series[t], s = a == 2 ? o.facets[1].scale : o.scale, c = e.scales[s];
	return i == -1 ? c.min : i == 1 ? c.max : c.distr == 3 ? c.dir == 1 ? c.min : c.max : 0;
}
function la(e, t, n, r, i, a) {
	return oa(e, t, (e, t, o, s, c, l, u, d, f, p, m) => {
		let h = e.pxRound, g = s.dir * (s.ori == 0 ? 1 : -1), _ = s.ori == 0 ? ha : ga, v, y;
		g == 1 ? (v = n, y = r) : (v = r, y = n);
		let b = h(l(t[v], s, p, d)), x = h(u(o[v], c, m, f)), S = h(l(t[y], s, p, d)), C = h(u(a == 1 ? c.max : c.min, c, m, f)), w = new Path2D(i);
		return _(w, S, C), _(w, b, C), _(w, b, x), w;
	});
}
function ua(e, t, n, r, i, a) {
	let o = null;
	if (e.length > 0) {
		o = new Path2D();
		let s = t == 0 ? _a : va, c = n;
		for (let t = 0; t < e.length; t++) {
			let n = e[t];
			if (n[1] > n[0]) {
				let e = n[0] - c;
				e > 0 && s(o, c, r, e, r + a), c = n[1];
			}
		}
		let l = n + i - c;
		l > 0 && s(o, c, r - 5, l, r + a + 10);
	}
	return o;
}
function da(e, t, n) {
	let r = e[e.length - 1];
	r && r[0] == t ? r[1] = n : e.push([t, n]);
}
function Q(e, t, n, r, i, a, o) {
	let s = [], c = e.length;
	for (let l = i == 1 ? n : r; l >= n && l <= r; l += i) if (t[l] === null) {
		let u = l, d = l;
		if (i == 1) for (; ++l <= r && t[l] === null;) d = l;
		else for (; --l >= n && t[l] === null;) d = l;
		let f = a(e[u]), p = d == u ? f : a(e[d]), m = u - i;
		f = o <= 0 && m >= 0 && m < c ? a(e[m]) : f;
		let h = d + i;
		p = o >= 0 && h >= 0 && h < c ? a(e[h]) : p, p >= f && s.push([f, p]);
	}
	return s;
}
function fa(e) {
	return e == 0 ? Yn : e == 1 ? Fn : (t) => nr(t, e);
}
function pa(e) {
	let t = e == 0 ? $ : ma, n = e == 0 ? (e, t, n, r, i, a) => {
		e.arcTo(t, n, r, i, a);
	} : (e, t, n, r, i, a) => {
		e.arcTo(n, t, i, r, a);
	}, r = e == 0 ? (e, t, n, r, i) => {
		e.rect(t, n, r, i);
	} : (e, t, n, r, i) => {
		e.rect(n, t, i, r);
	};
	return (e, i, a, o, s, c = 0, l = 0) => {
		c == 0 && l == 0 ? r(e, i, a, o, s) : (c = Ln(c, o / 2, s / 2), l = Ln(l, o / 2, s / 2), t(e, i + c, a), n(e, i + o, a, i + o, a + s, c), n(e, i + o, a + s, i, a + s, l), n(e, i, a + s, i, a, l), n(e, i, a, i + o, a, c), e.closePath());
	};
}
var $ = (e, t, n) => {
	e.moveTo(t, n);
}, ma = (e, t, n) => {
	e.moveTo(n, t);
}, ha = (e, t, n) => {
	e.lineTo(t, n);
}, ga = (e, t, n) => {
	e.lineTo(n, t);
}, _a = pa(0), va = pa(1), ya = (e, t, n, r, i, a) => {
	e.arc(t, n, r, i, a);
}, ba = (e, t, n, r, i, a) => {
	e.arc(n, t, r, i, a);
}, xa = (e, t, n, r, i, a, o) => {
	e.bezierCurveTo(t, n, r, i, a, o);
}, Sa = (e, t, n, r, i, a, o) => {
	e.bezierCurveTo(n, t, i, r, o, a);
};
function Ca(e) {
	return (e, t, n, r, i) => oa(e, t, (t, a, o, s, c, l, u, d, f, p, m) => {
		let { pxRound: h, points: g } = t, _, v;
		s.ori == 0 ? (_ = $, v = ya) : (_ = ma, v = ba);
		let y = W(g.width * z, 3), b = (g.size - g.width) / 2 * z, x = W(b * 2, 3), S = new Path2D(), C = new Path2D(), { left: w, top: T, width: E, height: D } = e.bbox;
		_a(C, w - x, T - x, E + x * 2, D + x * 2);
		let O = (e) => {
			if (o[e] != null) {
				let t = h(l(a[e], s, p, d)), n = h(u(o[e], c, m, f));
				_(S, t + b, n), v(S, t, n, b, 0, Mn * 2);
			}
		};
		if (i) i.forEach(O);
		else for (let e = n; e <= r; e++) O(e);
		return {
			stroke: y > 0 ? S : null,
			fill: S,
			clip: C,
			flags: 3
		};
	});
}
function wa(e) {
	return (t, n, r, i, a, o) => {
		r != i && (a != r && o != r && e(t, n, r), a != i && o != i && e(t, n, i), e(t, n, o));
	};
}
var Ta = wa(ha), Ea = wa(ga);
function Da(e) {
	let t = V(e?.alignGaps, 0);
	return (e, n, r, i) => oa(e, n, (a, o, s, c, l, u, d, f, p, m, h) => {
		[r, i] = _n(s, r, i);
		let g = a.pxRound, _ = (e) => g(u(e, c, m, f)), v = (e) => g(d(e, l, h, p)), y, b;
		c.ori == 0 ? (y = ha, b = Ta) : (y = ga, b = Ea);
		let x = c.dir * (c.ori == 0 ? 1 : -1), S = {
			stroke: new Path2D(),
			fill: null,
			clip: null,
			band: null,
			gaps: null,
			flags: ia
		}, C = S.stroke, w = !1;
		if (i - r >= m * 4) {
			let t = (t) => e.posToVal(t, c.key, !0), n = null, a = null, l, u, d, f = _(o[x == 1 ? r : i]), p = _(o[r]), m = _(o[i]), h = t(x == 1 ? p + 1 : m - 1);
			for (let e = x == 1 ? r : i; e >= r && e <= i; e += x) {
				let r = o[e], i = (x == 1 ? r < h : r > h) ? f : _(r), c = s[e];
				i == f ? c == null ? c === null && (w = !0) : (u = c, n == null ? (y(C, i, v(u)), l = n = a = u) : u < n ? n = u : u > a && (a = u)) : (n != null && b(C, f, v(n), v(a), v(l), v(u)), c == null ? (n = a = null, c === null && (w = !0)) : (u = c, y(C, i, v(u)), n = a = l = u), f = i, h = t(f + x));
			}
			n != null && n != a && d != f && b(C, f, v(n), v(a), v(l), v(u));
		} else for (let e = x == 1 ? r : i; e >= r && e <= i; e += x) {
			let t = s[e];
			t === null ? w = !0 : t != null && y(C, _(o[e]), v(t));
		}
		let [T, E] = sa(e, n);
		if (a.fill != null || T != 0) {
			let t = S.fill = new Path2D(C), s = v(a.fillTo(e, n, a.min, a.max, T)), c = _(o[r]), l = _(o[i]);
			x == -1 && ([l, c] = [c, l]), y(t, l, s), y(t, c, s);
		}
		if (!a.spanGaps) {
			let l = [];
			w && l.push(...Q(o, s, r, i, x, _, t)), S.gaps = l = a.gaps(e, n, r, i, l), S.clip = ua(l, c.ori, f, p, m, h);
		}
		return E != 0 && (S.band = E == 2 ? [la(e, n, r, i, C, -1), la(e, n, r, i, C, 1)] : la(e, n, r, i, C, E)), S;
	});
}
function Oa(e) {
	let t = V(e.align, 1), n = V(e.ascDesc, !1), r = V(e.alignGaps, 0), i = V(e.extend, !1);
	return (e, a, o, s) => oa(e, a, (c, l, u, d, f, p, m, h, g, _, v) => {
		[o, s] = _n(u, o, s);
		let y = c.pxRound, { left: b, width: x } = e.bbox, S = (e) => y(p(e, d, _, h)), C = (e) => y(m(e, f, v, g)), w = d.ori == 0 ? ha : ga, T = {
			stroke: new Path2D(),
			fill: null,
			clip: null,
			band: null,
			gaps: null,
			flags: ia
		}, E = T.stroke, D = d.dir * (d.ori == 0 ? 1 : -1), O = C(u[D == 1 ? o : s]), k = S(l[D == 1 ? o : s]), ee = k, A = k;
		i && t == -1 && (A = b, w(E, A, O)), w(E, k, O);
		for (let e = D == 1 ? o : s; e >= o && e <= s; e += D) {
			let n = u[e];
			if (n == null) continue;
			let r = S(l[e]), i = C(n);
			t == 1 ? w(E, r, O) : w(E, ee, i), w(E, r, i), O = i, ee = r;
		}
		let j = ee;
		i && t == 1 && (j = b + x, w(E, j, O));
		let [te, ne] = sa(e, a);
		if (c.fill != null || te != 0) {
			let t = T.fill = new Path2D(E), n = C(c.fillTo(e, a, c.min, c.max, te));
			w(t, j, n), w(t, A, n);
		}
		if (!c.spanGaps) {
			let i = [];
			i.push(...Q(l, u, o, s, D, S, r));
			let f = c.width * z / 2, p = n || t == 1 ? f : -f, m = n || t == -1 ? -f : f;
			i.forEach((e) => {
				e[0] += p, e[1] += m;
			}), T.gaps = i = c.gaps(e, a, o, s, i), T.clip = ua(i, d.ori, h, g, _, v);
		}
		return ne != 0 && (T.band = ne == 2 ? [la(e, a, o, s, E, -1), la(e, a, o, s, E, 1)] : la(e, a, o, s, E, ne)), T;
	});
}
function ka(e, t, n, r, i, a, o = H) {
	if (e.length > 1) {
		let s = null;
		for (let c = 0, l = Infinity; c < e.length; c++) if (t[c] !== void 0) {
			if (s != null) {
				let t = Nn(e[c] - e[s]);
				t < l && (l = t, o = Nn(n(e[c], r, i, a) - n(e[s], r, i, a)));
			}
			s = c;
		}
	}
	return o;
}
function Aa(e) {
	e ||= cr;
	let t = V(e.size, [
		.6,
		H,
		1
	]), n = e.align || 0, r = e.gap || 0, i = e.radius;
	i = i == null ? [0, 0] : typeof i == "number" ? [i, 0] : i;
	let a = U(i), o = 1 - t[0], s = V(t[1], H), c = V(t[2], 1), l = V(e.disp, cr), u = V(e.each, (e) => {}), { fill: d, stroke: f } = l;
	return (e, t, i, p) => oa(e, t, (m, h, g, _, v, y, b, x, S, C, w) => {
		let T = m.pxRound, E = n, D = r * z, O = s * z, k = c * z, ee, A;
		_.ori == 0 ? [ee, A] = a(e, t) : [A, ee] = a(e, t);
		let j = _.dir * (_.ori == 0 ? 1 : -1), te = _.ori == 0 ? _a : va, ne = _.ori == 0 ? u : (e, t, n, r, i, a, o) => {
			u(e, t, n, i, r, o, a);
		}, re = V(e.bands, lr).find((e) => e.series[0] == t), ie = re == null ? 0 : re.dir, ae = m.fillTo(e, t, m.min, m.max, ie), M = T(b(ae, v, w, S)), N, P, oe, F = C, I = T(m.width * z), se = !1, ce = null, le = null, ue = null, de = null;
		d != null && (I == 0 || f != null) && (se = !0, ce = d.values(e, t, i, p), le = /* @__PURE__ */ new Map(), new Set(ce).forEach((e) => {
			e != null && le.set(e, new Path2D());
		}), I > 0 && (ue = f.values(e, t, i, p), de = /* @__PURE__ */ new Map(), new Set(ue).forEach((e) => {
			e != null && de.set(e, new Path2D());
		})));
		let { x0: fe, size: pe } = l;
		if (fe != null && pe != null) {
			E = 1, h = fe.values(e, t, i, p), fe.unit == 2 && (h = h.map((t) => e.posToVal(x + t * C, _.key, !0)));
			let n = pe.values(e, t, i, p);
			P = pe.unit == 2 ? n[0] * C : y(n[0], _, C, x) - y(0, _, C, x), F = ka(h, g, y, _, C, x, F), oe = F - P + D;
		} else F = ka(h, g, y, _, C, x, F), oe = F * o + D, P = F - oe;
		oe < 1 && (oe = 0), I >= P / 2 && (I = 0), oe < 5 && (T = Yn);
		let me = oe > 0, he = F - oe - (me ? I : 0);
		P = T(Kn(he, k, O)), N = (E == 0 ? P / 2 : E == j ? 0 : P) - E * j * ((E == 0 ? D / 2 : 0) + (me ? I / 2 : 0));
		let ge = {
			stroke: null,
			fill: null,
			clip: null,
			band: null,
			gaps: null,
			flags: 0
		}, _e = se ? null : new Path2D(), ve = null;
		if (re != null) ve = e.data[re.series[1]];
		else {
			let { y0: n, y1: r } = l;
			n != null && r != null && (g = r.values(e, t, i, p), ve = n.values(e, t, i, p));
		}
		let ye = ee * P, be = A * P;
		for (let n = j == 1 ? i : p; n >= i && n <= p; n += j) {
			let r = g[n];
			if (r == null) continue;
			if (ve != null) {
				let e = ve[n] ?? 0;
				if (r - e == 0) continue;
				M = b(e, v, w, S);
			}
			let i = y(_.distr != 2 || l != null ? h[n] : n, _, C, x), a = b(V(r, ae), v, w, S), o = T(i - N), s = T(Rn(a, M)), c = T(Ln(a, M)), u = s - c;
			if (r != null) {
				let i = r < 0 ? be : ye, a = r < 0 ? ye : be;
				se ? (I > 0 && ue[n] != null && te(de.get(ue[n]), o, c + Pn(I / 2), P, Rn(0, u - I), i, a), ce[n] != null && te(le.get(ce[n]), o, c + Pn(I / 2), P, Rn(0, u - I), i, a)) : te(_e, o, c + Pn(I / 2), P, Rn(0, u - I), i, a), ne(e, t, n, o - I / 2, c, P + I, u);
			}
		}
		return I > 0 ? ge.stroke = se ? de : _e : se || (ge._fill = m.width == 0 ? m._fill : m._stroke ?? m._fill, ge.width = 0), ge.fill = se ? le : _e, ge;
	});
}
function ja(e, t) {
	let n = V(t?.alignGaps, 0);
	return (t, r, i, a) => oa(t, r, (o, s, c, l, u, d, f, p, m, h, g) => {
		[i, a] = _n(c, i, a);
		let _ = o.pxRound, v = (e) => _(d(e, l, h, p)), y = (e) => _(f(e, u, g, m)), b, x, S;
		l.ori == 0 ? (b = $, S = ha, x = xa) : (b = ma, S = ga, x = Sa);
		let C = l.dir * (l.ori == 0 ? 1 : -1), w = v(s[C == 1 ? i : a]), T = w, E = [], D = [];
		for (let e = C == 1 ? i : a; e >= i && e <= a; e += C) if (c[e] != null) {
			let t = s[e], n = v(t);
			E.push(T = n), D.push(y(c[e]));
		}
		let O = {
			stroke: e(E, D, b, S, x, _),
			fill: null,
			clip: null,
			band: null,
			gaps: null,
			flags: ia
		}, k = O.stroke, [ee, A] = sa(t, r);
		if (o.fill != null || ee != 0) {
			let e = O.fill = new Path2D(k), n = y(o.fillTo(t, r, o.min, o.max, ee));
			S(e, T, n), S(e, w, n);
		}
		if (!o.spanGaps) {
			let e = [];
			e.push(...Q(s, c, i, a, C, v, n)), O.gaps = e = o.gaps(t, r, i, a, e), O.clip = ua(e, l.ori, p, m, h, g);
		}
		return A != 0 && (O.band = A == 2 ? [la(t, r, i, a, k, -1), la(t, r, i, a, k, 1)] : la(t, r, i, a, k, A)), O;
	});
}
function Ma(e) {
	return ja(Na, e);
}
function Na(e, t, n, r, i, a) {
	let o = e.length;
	if (o < 2) return null;
	let s = new Path2D();
	if (n(s, e[0], t[0]), o == 2) r(s, e[1], t[1]);
	else {
		let n = Array(o), r = Array(o - 1), a = Array(o - 1), c = Array(o - 1);
		for (let n = 0; n < o - 1; n++) a[n] = t[n + 1] - t[n], c[n] = e[n + 1] - e[n], r[n] = a[n] / c[n];
		n[0] = r[0];
		for (let e = 1; e < o - 1; e++) r[e] === 0 || r[e - 1] === 0 || r[e - 1] > 0 != r[e] > 0 ? n[e] = 0 : (n[e] = 3 * (c[e - 1] + c[e]) / ((2 * c[e] + c[e - 1]) / r[e - 1] + (c[e] + 2 * c[e - 1]) / r[e]), isFinite(n[e]) || (n[e] = 0));
		n[o - 1] = r[o - 2];
		for (let r = 0; r < o - 1; r++) i(s, e[r] + c[r] / 3, t[r] + n[r] * c[r] / 3, e[r + 1] - c[r] / 3, t[r + 1] - n[r + 1] * c[r] / 3, e[r + 1], t[r + 1]);
	}
	return s;
}
var Pa = /* @__PURE__ */ new Set();
function Fa() {
	for (let e of Pa) e.syncRect(!0);
}
Kt && (dn(Vt, Jt, Fa), dn(Ht, Jt, Fa, !0), dn(Wt, Jt, () => {
	Za.pxRatio = z;
}));
var Ia = Da(), La = Ca();
function Ra(e, t, n, r) {
	return (r ? [e[0], e[1]].concat(e.slice(2)) : [e[0]].concat(e.slice(1))).map((e, r) => Ba(e, r, t, n));
}
function za(e, t) {
	return e.map((e, n) => n == 0 ? {} : G({}, t, e));
}
function Ba(e, t, n, r) {
	return G({}, t == 0 ? n : r, e);
}
function Va(e, t, n) {
	return t == null ? ur : [t, n];
}
var Ha = Va;
function Ua(e, t, n) {
	return t == null ? ur : En(t, n, Sn, !0);
}
function Wa(e, t, n, r) {
	return t == null ? ur : bn(t, n, e.scales[r].log, !1);
}
var Ga = Wa;
function Ka(e, t, n, r) {
	return t == null ? ur : xn(t, n, e.scales[r].log, !1);
}
var qa = Ka;
function Ja(e, t, n, r, i) {
	let a = Rn(Gn(e), Gn(t)), o = t - e, s = pn(i / r * o, n);
	do {
		let e = n[s], t = r * e / o;
		if (t >= i && a + (e < 5 ? ar.get(e) : 0) <= 17) return [e, t];
	} while (++s < n.length);
	return [0, 0];
}
function Ya(e) {
	let t, n;
	return e = e.replace(/(\d+)px/, (e, r) => (t = Fn((n = +r) * z)) + "px"), [
		e,
		t,
		n
	];
}
function Xa(e) {
	e.show && [e.font, e.labelFont].forEach((e) => {
		let t = W(e[2] * z, 1);
		e[0] = e[0].replace(/[0-9.]+px/, t + "px"), e[1] = t;
	});
}
function Za(e, t, n) {
	let r = { mode: V(e.mode, 1) }, i = r.mode;
	function a(e, t, n, r) {
		let i = t.valToPct(e);
		return r + n * (t.dir == -1 ? 1 - i : i);
	}
	function o(e, t, n, r) {
		let i = t.valToPct(e);
		return r + n * (t.dir == -1 ? i : 1 - i);
	}
	function s(e, t, n, r) {
		return t.ori == 0 ? a(e, t, n, r) : o(e, t, n, r);
	}
	r.valToPosH = a, r.valToPosV = o;
	let c = !1;
	r.status = 0;
	let l = r.root = tn(st);
	if (e.id != null && (l.id = e.id), Qt(l, e.class), e.title) {
		let t = tn(ut, l);
		t.textContent = e.title;
	}
	let u = en("canvas"), d = r.ctx = u.getContext("2d"), f = tn(dt, l);
	dn("click", f, (e) => {
		e.target === m && (K != Fr || q != Ir) && Vr.click(r, e);
	}, !0);
	let p = r.under = tn(ft, f);
	f.appendChild(u);
	let m = r.over = tn(pt, f);
	e = yr(e);
	let h = +V(e.pxAlign, 1), g = fa(h);
	(e.plugins || []).forEach((t) => {
		t.opts && (e = t.opts(r, e) || e);
	});
	let _ = e.ms || .001, v = r.series = i == 1 ? Ra(e.series || [], Ni, Qi, !1) : za(e.series || [null], Zi), y = r.axes = Ra(e.axes || [], Ai, Ki, !0), b = r.scales = {}, x = r.bands = e.bands || [];
	x.forEach((e) => {
		e.fill = U(e.fill || null), e.dir = V(e.dir, -1);
	});
	let S = i == 2 ? v[1].facets[0].scale : v[0].scale, C = {
		axes: _r,
		series: Bn
	}, w = (e.drawOrder || ["axes", "series"]).map((e) => C[e]);
	function T(e) {
		let t = e.distr == 3 ? (t) => Vn(t > 0 ? t : e.clamp(r, t, e.min, e.max, e.key)) : e.distr == 4 ? (t) => Wn(t, e.asinh) : e.distr == 100 ? (t) => e.fwd(t) : (e) => e;
		return (n) => {
			let r = t(n), { _min: i, _max: a } = e, o = a - i;
			return (r - i) / o;
		};
	}
	function E(t) {
		let n = b[t];
		if (n == null) {
			let r = (e.scales || cr)[t] || cr;
			if (r.from != null) {
				E(r.from);
				let e = G({}, b[r.from], r, { key: t });
				e.valToPct = T(e), b[t] = e;
			} else {
				n = b[t] = G({}, t == S ? ea : ta, r), n.key = t;
				let e = n.time, a = n.range, o = dr(a);
				if ((t != S || i == 2 && !e) && (o && (a[0] == null || a[1] == null) && (a = {
					min: a[0] == null ? Cn : {
						mode: 1,
						hard: a[0],
						soft: a[0]
					},
					max: a[1] == null ? Cn : {
						mode: 1,
						hard: a[1],
						soft: a[1]
					}
				}, o = !1), !o && hr(a))) {
					let e = a;
					a = (t, n, r) => n == null ? ur : En(n, r, e);
				}
				n.range = U(a || (e ? Ha : t == S ? n.distr == 3 ? Ga : n.distr == 4 ? qa : Va : n.distr == 3 ? Wa : n.distr == 4 ? Ka : Ua)), n.auto = U(!o && n.auto), n.clamp = U(n.clamp || $i), n._min = n._max = null, n.valToPct = T(n);
			}
		}
	}
	E("x"), E("y"), i == 1 && v.forEach((e) => {
		E(e.scale);
	}), y.forEach((e) => {
		E(e.scale);
	});
	for (let t in e.scales) E(t);
	let D = b[S], O = D.distr, k, ee;
	D.ori == 0 ? (Qt(l, ct), k = a, ee = o) : (Qt(l, lt), k = o, ee = a);
	let A = {};
	for (let e in b) {
		let t = b[e];
		(t.min != null || t.max != null) && (A[e] = {
			min: t.min,
			max: t.max
		}, t.min = t.max = null);
	}
	let j = e.tzDate || ((e) => new Date(Fn(e / _))), te = e.fmtDate || Lr, ne = _ == 1 ? ei(j) : ri(j), re = ai(j, ii(_ == 1 ? $r : ni, te)), ie = ui(j, ci(li, te)), ae = [], M = r.legend = G({}, pi, e.legend), N = r.cursor = G({}, Si, { drag: { y: i == 2 } }, e.cursor), P = M.show, oe = N.show, F = M.markers;
	M.idxs = ae, F.width = U(F.width), F.dash = U(F.dash), F.stroke = U(F.stroke), F.fill = U(F.fill);
	let I, se, ce, le = [], ue = [], de, fe = !1, pe = {};
	if (M.live) {
		let e = v[1] ? v[1].values : null;
		fe = e != null, de = fe ? e(r, 1, 0) : { _: 0 };
		for (let e in de) pe[e] = Gt;
	}
	if (P) {
		if (I = en("table", bt, l), ce = en("tbody", null, I), M.mount(r, I), fe) {
			se = en("thead", null, I, ce);
			let e = en("tr", null, se);
			for (var me in en("th", null, e), de) en("th", Tt, e).textContent = me;
		} else Qt(I, St), M.live && Qt(I, xt);
	}
	let he = { show: !0 }, ge = { show: !1 };
	function _e(e, t) {
		if (t == 0 && (fe || !M.live || i == 2)) return ur;
		let n = [], a = en("tr", Ct, ce, ce.childNodes[t]);
		Qt(a, e.class), e.show || Qt(a, ht);
		let o = en("th", null, a);
		if (F.show) {
			let e = tn(wt, o);
			if (t > 0) {
				let n = F.width(r, t);
				n && (e.style.border = n + "px " + F.dash(r, t) + " " + F.stroke(r, t)), e.style.background = F.fill(r, t);
			}
		}
		let s = tn(Tt, o);
		for (var c in e.label instanceof HTMLElement ? s.appendChild(e.label) : s.textContent = e.label, t > 0 && (F.show || (s.style.color = e.width > 0 ? F.stroke(r, t) : F.fill(r, t)), ye("click", o, (t) => {
			if (N._lock) return;
			Ge(t);
			let n = v.indexOf(e);
			if ((t.ctrlKey || t.metaKey) != M.isolate) {
				let e = v.some((e, t) => t > 0 && t != n && e.show);
				v.forEach((t, r) => {
					r > 0 && Jr(r, e ? r == n ? he : ge : he, !0, $.setSeries);
				});
			} else Jr(n, { show: !e.show }, !0, $.setSeries);
		}, !1), Je && ye(Rt, o, (t) => {
			N._lock || (Ge(t), Jr(v.indexOf(e), mi, !0, $.setSeries));
		}, !1)), de) {
			let e = en("td", Et, a);
			e.textContent = "--", n.push(e);
		}
		return [a, n];
	}
	let ve = /* @__PURE__ */ new Map();
	function ye(e, t, n, i = !0) {
		let a = ve.get(t) || {}, o = N.bind[e](r, t, n, i);
		o && (dn(e, t, a[e] = o), ve.set(t, a));
	}
	function be(e, t, n) {
		let r = ve.get(t) || {};
		for (let n in r) (e == null || n == e) && (fn(n, t, r[n]), delete r[n]);
		e ?? ve.delete(t);
	}
	let xe = 0, Se = 0, L = 0, R = 0, Ce = 0, we = 0, Te = Ce, Ee = we, De = L, Oe = R, ke = 0, Ae = 0, je = 0, Me = 0;
	r.bbox = {};
	let Ne = !1, Pe = !1, Fe = !1, Ie = !1, Le = !1, Re = !1;
	function ze(e, t, n) {
		(n || e != r.width || t != r.height) && Be(e, t), vr(!1), Fe = !0, Pe = !0, wr();
	}
	function Be(e, t) {
		r.width = xe = L = e, r.height = Se = R = t, Ce = we = 0, Ue(), We();
		let n = r.bbox;
		ke = n.left = nr(Ce * z, .5), Ae = n.top = nr(we * z, .5), je = n.width = nr(L * z, .5), Me = n.height = nr(R * z, .5);
	}
	function Ve() {
		let e = !1, t = 0;
		for (; !e;) {
			t++;
			let n = sr(t), i = fr(t);
			e = t == 3 || n && i, e || (Be(r.width, r.height), Pe = !0);
		}
	}
	function He({ width: e, height: t }) {
		ze(e, t);
	}
	r.setSize = He;
	function Ue() {
		let e = !1, t = !1, n = !1, r = !1;
		y.forEach((i, a) => {
			if (i.show && i._show) {
				let { side: a, _size: o } = i, s = a % 2, c = o + (i.label == null ? 0 : i.labelSize);
				c > 0 && (s ? (L -= c, a == 3 ? (Ce += c, r = !0) : n = !0) : (R -= c, a == 0 ? (we += c, e = !0) : t = !0));
			}
		}), rt[0] = e, rt[1] = n, rt[2] = t, rt[3] = r, L -= Nt[1] + Nt[3], Ce += Nt[3], R -= Nt[2] + Nt[0], we += Nt[0];
	}
	function We() {
		let e = Ce + L, t = we + R, n = Ce, r = we;
		function i(i, a) {
			switch (i) {
				case 1: return e += a, e - a;
				case 2: return t += a, t - a;
				case 3: return n -= a, n + a;
				case 0: return r -= a, r + a;
			}
		}
		y.forEach((e, t) => {
			if (e.show && e._show) {
				let t = e.side;
				e._pos = i(t, e._size), e.label != null && (e._lpos = i(t, e.labelSize));
			}
		});
	}
	if (N.dataIdx == null) {
		let e = N.hover, n = e.skip = new Set(e.skip ?? []);
		n.add(void 0);
		let r = e.prox = U(e.prox), i = e.bias ??= 0;
		N.dataIdx = (e, a, o, s) => {
			if (a == 0) return o;
			let c = o, l = r(e, a, o, s) ?? H, u = l >= 0 && l < H, d = D.ori == 0 ? L : R, f = N.left, p = t[0], m = t[a];
			if (n.has(m[o])) {
				c = null;
				let e = null, t = null, r;
				if (i == 0 || i == -1) for (r = o; e == null && r-- > 0;) n.has(m[r]) || (e = r);
				if (i == 0 || i == 1) for (r = o; t == null && r++ < m.length;) n.has(m[r]) || (t = r);
				if (e != null || t != null) {
					if (u) {
						let n = e == null ? -Infinity : k(p[e], D, d, 0), r = t == null ? Infinity : k(p[t], D, d, 0), i = f - n, a = r - f;
						i <= a ? i <= l && (c = e) : a <= l && (c = t);
					} else c = t == null ? e : e == null ? t : o - e <= t - o ? e : t;
				}
			} else u && Nn(f - k(p[o], D, d, 0)) > l && (c = null);
			return c;
		};
	}
	let Ge = (e) => {
		N.event = e;
	};
	N.idxs = ae, N._lock = !1;
	let Ke = N.points;
	Ke.show = U(Ke.show), Ke.size = U(Ke.size), Ke.stroke = U(Ke.stroke), Ke.width = U(Ke.width), Ke.fill = U(Ke.fill);
	let qe = r.focus = G({}, e.focus || { alpha: .3 }, N.focus), Je = qe.prox >= 0, Ye = Je && Ke.one, Xe = [], Ze = [], Qe = [];
	function $e(e, t) {
		let n = Ke.show(r, t);
		if (n instanceof HTMLElement) return Qt(n, yt), Qt(n, e.class), rn(n, -10, -10, L, R), m.insertBefore(n, Xe[t]), n;
	}
	function et(e, t) {
		if (i == 1 || t > 0) {
			let t = i == 1 && b[e.scale].time, n = e.value;
			e.value = t ? mr(n) ? ui(j, ci(n, te)) : n || ie : n || Gi, e.label = e.label || (t ? Mi : ji);
		}
		if (Ye || t > 0) {
			e.width = e.width == null ? 1 : e.width, e.paths = e.paths || Ia || Zn, e.fillTo = U(e.fillTo || ca), e.pxAlign = +V(e.pxAlign, h), e.pxRound = fa(e.pxAlign), e.stroke = U(e.stroke || null), e.fill = U(e.fill || null), e._stroke = e._fill = e._paths = e._focus = null;
			let t = qi(Rn(1, e.width), 1), n = e.points = G({}, {
				size: t,
				width: Rn(1, t * .2),
				stroke: e.stroke,
				space: t * 2,
				paths: La,
				_stroke: null,
				_fill: null
			}, e.points);
			n.show = U(n.show), n.filter = U(n.filter), n.fill = U(n.fill), n.stroke = U(n.stroke), n.paths = U(n.paths), n.pxAlign = e.pxAlign;
		}
		if (P) {
			let n = _e(e, t);
			le.splice(t, 0, n[0]), ue.splice(t, 0, n[1]), M.values.push(null);
		}
		if (oe) {
			ae.splice(t, 0, null);
			let n = null;
			Ye ? t == 0 && (n = $e(e, t)) : t > 0 && (n = $e(e, t)), Xe.splice(t, 0, n), Ze.splice(t, 0, 0), Qe.splice(t, 0, 0);
		}
		Q("addSeries", t);
	}
	function tt(e, t) {
		t ??= v.length, e = i == 1 ? Ba(e, t, Ni, Qi) : Ba(e, t, {}, Zi), v.splice(t, 0, e), et(v[t], t);
	}
	r.addSeries = tt;
	function nt(e) {
		if (v.splice(e, 1), P) {
			M.values.splice(e, 1), ue.splice(e, 1);
			let t = le.splice(e, 1)[0];
			be(null, t.firstChild), t.remove();
		}
		oe && (ae.splice(e, 1), Xe.splice(e, 1)[0].remove(), Ze.splice(e, 1), Qe.splice(e, 1)), Q("delSeries", e);
	}
	r.delSeries = nt;
	let rt = [
		!1,
		!1,
		!1,
		!1
	];
	function it(e, t) {
		if (e._show = e.show, e.show) {
			let n = e.side % 2, i = b[e.scale];
			i ??= (e.scale = n ? v[1].scale : S, b[e.scale]);
			let a = i.time;
			e.size = U(e.size), e.space = U(e.space), e.rotate = U(e.rotate), dr(e.incrs) && e.incrs.forEach((e) => {
				!ar.has(e) && ar.set(e, or(e));
			}), e.incrs = U(e.incrs || (i.distr == 2 ? Hr : a ? _ == 1 ? Qr : ti : Ur)), e.splits = U(e.splits || (a && i.distr == 1 ? ne : i.distr == 3 ? Ii : i.distr == 4 ? Li : Fi)), e.stroke = U(e.stroke), e.grid.stroke = U(e.grid.stroke), e.ticks.stroke = U(e.ticks.stroke), e.border.stroke = U(e.border.stroke);
			let o = e.values;
			e.values = dr(o) && !dr(o[0]) ? U(o) : a ? dr(o) ? ai(j, ii(o, te)) : mr(o) ? oi(j, o) : o || re : o || Pi, e.filter = U(e.filter || (i.distr >= 3 && i.log == 10 ? Ui : i.distr == 3 && i.log == 2 ? Wi : Xn)), e.font = Ya(e.font), e.labelFont = Ya(e.labelFont), e._size = e.size(r, null, t, 0), e._space = e._rotate = e._incrs = e._found = e._splits = e._values = null, e._size > 0 && (rt[t] = !0, e._el = tn(mt, f));
		}
	}
	function at(e, t, n, r) {
		let [i, a, o, s] = n, c = t % 2, l = 0;
		return c == 0 && (s || a) && (l = t == 0 && !i || t == 2 && !o ? Fn(Ai.size / 3) : 0), c == 1 && (i || o) && (l = t == 1 && !a || t == 3 && !s ? Fn(Ki.size / 2) : 0), l;
	}
	let ot = r.padding = (e.padding || [
		at,
		at,
		at,
		at
	]).map((e) => U(V(e, at))), Nt = r._padding = ot.map((e, t) => e(r, t, rt, 0)), Vt, Ht = null, Ut = null, Kt = i == 1 ? v[0].idxs : null, Yt = null, Xt = !1;
	function Zt(e, n) {
		if (t = e ?? [], r.data = r._data = t, i == 2) {
			Vt = 0;
			for (let e = 1; e < v.length; e++) Vt += t[e][0].length;
		} else {
			t.length == 0 && (r.data = r._data = t = [[]]), Yt = t[0], Vt = Yt.length;
			let e = t;
			if (O == 2) {
				e = t.slice();
				let n = e[0] = Array(Vt);
				for (let e = 0; e < Vt; e++) n[e] = e;
			}
			r._data = t = e;
		}
		if (vr(!0), Q("setData"), O == 2 && (Fe = !0), n !== !1) {
			let e = D;
			e.auto(r, Xt) ? nn() : qr(S, e.min, e.max), Ie ||= N.left >= 0, Re = !0, wr();
		}
	}
	r.setData = Zt;
	function nn() {
		Xt = !0;
		let e, n;
		i == 1 && (Vt > 0 ? (Ht = Kt[0] = 0, Ut = Kt[1] = Vt - 1, e = t[0][Ht], n = t[0][Ut], O == 2 ? (e = Ht, n = Ut) : e == n && (O == 3 ? [e, n] = bn(e, e, D.log, !1) : O == 4 ? [e, n] = xn(e, e, D.log, !1) : D.time ? n = e + Fn(86400 / _) : [e, n] = En(e, n, Sn, !0))) : (Ht = Kt[0] = e = null, Ut = Kt[1] = n = null)), qr(S, e, n);
	}
	let an, sn, ln, un, mn, hn, gn, _n, vn, wn;
	function Tn(e, t, n, r, i, a) {
		e ??= Pt, n ??= lr, r ??= "butt", i ??= Pt, a ??= "round", e != an && (d.strokeStyle = an = e), i != sn && (d.fillStyle = sn = i), t != ln && (d.lineWidth = ln = t), a != mn && (d.lineJoin = mn = a), r != hn && (d.lineCap = hn = r), n != un && d.setLineDash(un = n);
	}
	function On(e, t, n, r) {
		t != sn && (d.fillStyle = sn = t), e != gn && (d.font = gn = e), n != _n && (d.textAlign = _n = n), r != vn && (d.textBaseline = vn = r);
	}
	function kn(e, t, n, i, a = 0) {
		if (i.length > 0 && e.auto(r, Xt) && (t == null || t.min == null)) {
			let t = V(Ht, 0), r = V(Ut, i.length - 1), o = n.min == null ? yn(i, t, r, a, e.distr == 3) : [n.min, n.max];
			e.min = Ln(e.min, n.min = o[0]), e.max = Rn(e.max, n.max = o[1]);
		}
	}
	let An = {
		min: null,
		max: null
	};
	function jn() {
		for (let e in b) {
			let t = b[e];
			A[e] == null && (t.min == null || A[S] != null && t.auto(r, Xt)) && (A[e] = An);
		}
		for (let e in b) {
			let t = b[e];
			A[e] == null && t.from != null && A[t.from] != null && (A[e] = An);
		}
		A[S] != null && vr(!0);
		let e = {};
		for (let t in A) {
			let n = A[t];
			if (n != null) {
				let a = e[t] = yr(b[t], gr);
				if (n.min != null) G(a, n);
				else if (t != S || i == 2) {
					if (Vt == 0 && a.from == null) {
						let e = a.range(r, null, null, t);
						a.min = e[0], a.max = e[1];
					} else a.min = H, a.max = -Infinity;
				}
			}
		}
		if (Vt > 0) {
			v.forEach((n, a) => {
				if (i == 1) {
					let i = n.scale, o = A[i];
					if (o == null) return;
					let s = e[i];
					if (a == 0) {
						let e = s.range(r, s.min, s.max, i);
						s.min = e[0], s.max = e[1], Ht = pn(s.min, t[0]), Ut = pn(s.max, t[0]), Ut - Ht > 1 && (t[0][Ht] < s.min && Ht++, t[0][Ut] > s.max && Ut--), n.min = Yt[Ht], n.max = Yt[Ut];
					} else n.show && n.auto && kn(s, o, n, t[a], n.sorted);
					n.idxs[0] = Ht, n.idxs[1] = Ut;
				} else if (a > 0 && n.show && n.auto) {
					let [r, i] = n.facets, o = r.scale, s = i.scale, [c, l] = t[a], u = e[o], d = e[s];
					u != null && kn(u, A[o], r, c, r.sorted), d != null && kn(d, A[s], i, l, i.sorted), n.min = i.min, n.max = i.max;
				}
			});
			for (let t in e) {
				let n = e[t], i = A[t];
				if (n.from == null && (i == null || i.min == null)) {
					let e = n.range(r, n.min == H ? null : n.min, n.max == -Infinity ? null : n.max, t);
					n.min = e[0], n.max = e[1];
				}
			}
		}
		for (let t in e) {
			let n = e[t];
			if (n.from != null) {
				let i = e[n.from];
				if (i.min == null) n.min = n.max = null;
				else {
					let e = n.range(r, i.min, i.max, t);
					n.min = e[0], n.max = e[1];
				}
			}
		}
		let n = {}, a = !1;
		for (let t in e) {
			let r = e[t], i = b[t];
			if (i.min != r.min || i.max != r.max) {
				i.min = r.min, i.max = r.max;
				let e = i.distr;
				i._min = e == 3 ? Vn(i.min) : e == 4 ? Wn(i.min, i.asinh) : e == 100 ? i.fwd(i.min) : i.min, i._max = e == 3 ? Vn(i.max) : e == 4 ? Wn(i.max, i.asinh) : e == 100 ? i.fwd(i.max) : i.max, n[t] = a = !0;
			}
		}
		if (a) {
			v.forEach((e, t) => {
				i == 2 ? t > 0 && n.y && (e._paths = null) : n[e.scale] && (e._paths = null);
			});
			for (let e in n) Fe = !0, Q("setScale", e);
			oe && N.left >= 0 && (Ie = Re = !0);
		}
		for (let e in A) A[e] = null;
	}
	function Pn(e) {
		let t = Kn(Ht - 1, 0, Vt - 1), n = Kn(Ut + 1, 0, Vt - 1);
		for (; e[t] == null && t > 0;) t--;
		for (; e[n] == null && n < Vt - 1;) n++;
		return [t, n];
	}
	function Bn() {
		if (Vt > 0) {
			let e = v.some((e) => e._focus) && wn != qe.alpha;
			e && (d.globalAlpha = wn = qe.alpha), v.forEach((e, n) => {
				if (n > 0 && e.show && (Hn(n, !1), Hn(n, !0), e._paths == null)) {
					let a = wn;
					wn != e.alpha && (d.globalAlpha = wn = e.alpha);
					let o = i == 2 ? [0, t[n][0].length - 1] : Pn(t[n]);
					e._paths = e.paths(r, n, o[0], o[1]), wn != a && (d.globalAlpha = wn = a);
				}
			}), v.forEach((e, t) => {
				if (t > 0 && e.show) {
					let n = wn;
					wn != e.alpha && (d.globalAlpha = wn = e.alpha), e._paths != null && Gn(t, !1);
					{
						let n = e._paths == null ? null : e._paths.gaps, i = e.points.show(r, t, Ht, Ut, n), a = e.points.filter(r, t, i, n);
						(i || a) && (e.points._paths = e.points.paths(r, t, Ht, Ut, a), Gn(t, !0));
					}
					wn != n && (d.globalAlpha = wn = n), Q("drawSeries", t);
				}
			}), e && (d.globalAlpha = wn = 1);
		}
	}
	function Hn(e, t) {
		let n = t ? v[e].points : v[e];
		n._stroke = n.stroke(r, e), n._fill = n.fill(r, e);
	}
	function Gn(e, t) {
		let n = t ? v[e].points : v[e], { stroke: r, fill: i, clip: a, flags: o, _stroke: s = n._stroke, _fill: c = n._fill, _width: l = n.width } = n._paths;
		l = W(l * z, 3);
		let u = null, f = l % 2 / 2;
		t && c == null && (c = l > 0 ? "#fff" : s);
		let p = n.pxAlign == 1 && f > 0;
		if (p && d.translate(f, f), !t) {
			let e = ke - l / 2, t = Ae - l / 2, n = je + l, r = Me + l;
			u = new Path2D(), u.rect(e, t, n, r);
		}
		t ? Yn(s, l, n.dash, n.cap, c, r, i, o, a) : Jn(e, s, l, n.dash, n.cap, c, r, i, o, u, a), p && d.translate(-f, -f);
	}
	function Jn(e, n, i, a, o, s, c, l, u, d, f) {
		let p = !1;
		u != 0 && x.forEach((m, h) => {
			if (m.series[0] == e) {
				let e = v[m.series[1]], g = t[m.series[1]], _ = (e._paths || cr).band;
				dr(_) && (_ = m.dir == 1 ? _[0] : _[1]);
				let y, b = null;
				e.show && _ && Dn(g, Ht, Ut) ? (b = m.fill(r, h) || s, y = e._paths.clip) : _ = null, Yn(n, i, a, o, b, c, l, u, d, f, y, _), p = !0;
			}
		}), p || Yn(n, i, a, o, s, c, l, u, d, f);
	}
	function Yn(e, t, n, r, i, a, o, s, c, l, u, f) {
		Tn(e, t, n, r, i), (c || l || f) && (d.save(), c && d.clip(c), l && d.clip(l)), f ? (s & 3) == 3 ? (d.clip(f), u && d.clip(u), tr(i, o), er(e, a, t)) : s & aa ? (tr(i, o), d.clip(f), er(e, a, t)) : s & ia && (d.save(), d.clip(f), u && d.clip(u), tr(i, o), d.restore(), er(e, a, t)) : (tr(i, o), er(e, a, t)), (c || l || f) && d.restore();
	}
	function er(e, t, n) {
		n > 0 && (t instanceof Map ? t.forEach((e, t) => {
			d.strokeStyle = an = t, d.stroke(e);
		}) : t != null && e && d.stroke(t));
	}
	function tr(e, t) {
		t instanceof Map ? t.forEach((e, t) => {
			d.fillStyle = sn = t, d.fill(e);
		}) : t != null && e && d.fill(t);
	}
	function rr(e, t, n, i) {
		let a = y[e], o;
		if (i <= 0) o = [0, 0];
		else {
			let s = a._space = a.space(r, e, t, n, i);
			o = Ja(t, n, a._incrs = a.incrs(r, e, t, n, i, s), i, s);
		}
		return a._found = o;
	}
	function ir(e, t, n, r, i, a, o, s, c, l) {
		let u = o % 2 / 2;
		h == 1 && d.translate(u, u), Tn(s, o, c, l, s), d.beginPath();
		let f, p, m, g, _ = i + (r == 0 || r == 3 ? -a : a);
		n == 0 ? (p = i, g = _) : (f = i, m = _);
		for (let r = 0; r < e.length; r++) t[r] != null && (n == 0 ? f = m = e[r] : p = g = e[r], d.moveTo(f, p), d.lineTo(m, g));
		d.stroke(), h == 1 && d.translate(-u, -u);
	}
	function sr(e) {
		let t = !0;
		return y.forEach((n, i) => {
			if (!n.show) return;
			let a = b[n.scale];
			if (a.min == null) {
				n._show && (t = !1, n._show = !1, vr(!1));
				return;
			}
			n._show || (t = !1, n._show = !0, vr(!1));
			let o = n.side, s = o % 2, { min: c, max: l } = a, [u, d] = rr(i, c, l, s == 0 ? L : R);
			if (d == 0) return;
			let f = a.distr == 2, p = n._splits = n.splits(r, i, c, l, u, d, f), m = a.distr == 2 ? p.map((e) => Yt[e]) : p, h = a.distr == 2 ? Yt[p[1]] - Yt[p[0]] : u, g = n._values = n.values(r, n.filter(r, m, i, d, h), i, d, h);
			n._rotate = o == 2 ? n.rotate(r, g, i, d) : 0;
			let _ = n._size;
			n._size = In(n.size(r, g, i, e)), _ != null && n._size != _ && (t = !1);
		}), t;
	}
	function fr(e) {
		let t = !0;
		return ot.forEach((n, i) => {
			let a = n(r, i, rt, e);
			a != Nt[i] && (t = !1), Nt[i] = a;
		}), t;
	}
	function _r() {
		for (let e = 0; e < y.length; e++) {
			let t = y[e];
			if (!t.show || !t._show) continue;
			let n = t.side, i = n % 2, a, o, c = t.stroke(r, e), l = n == 0 || n == 3 ? -1 : 1, [u, f] = t._found;
			if (t.label != null) {
				let s = t.labelGap * l, p = Fn((t._lpos + s) * z);
				On(t.labelFont[0], c, "center", n == 2 ? kt : At), d.save(), i == 1 ? (a = o = 0, d.translate(p, Fn(Ae + Me / 2)), d.rotate((n == 3 ? -Mn : Mn) / 2)) : (a = Fn(ke + je / 2), o = p);
				let m = qn(t.label) ? t.label(r, e, u, f) : t.label;
				d.fillText(m, a, o), d.restore();
			}
			if (f == 0) continue;
			let p = b[t.scale], m = i == 0 ? je : Me, h = i == 0 ? ke : Ae, _ = t._splits, v = p.distr == 2 ? _.map((e) => Yt[e]) : _, x = p.distr == 2 ? Yt[_[1]] - Yt[_[0]] : u, S = t.ticks, C = t.border, w = S.show ? S.size : 0, T = Fn(w * z), E = Fn((t.alignTo == 2 ? t._size - w - t.gap : t.gap) * z), D = t._rotate * -Mn / 180, O = g(t._pos * z), k = O + (T + E) * l;
			o = i == 0 ? k : 0, a = i == 1 ? k : 0;
			let ee = t.font[0];
			On(ee, c, t.align == 1 ? jt : t.align == 2 ? Mt : D > 0 ? jt : D < 0 ? Mt : i == 0 ? "center" : n == 3 ? Mt : jt, D || i == 1 ? "middle" : n == 2 ? kt : At);
			let A = t.font[1] * t.lineGap, j = _.map((e) => g(s(e, p, m, h))), te = t._values;
			for (let e = 0; e < te.length; e++) {
				let t = te[e];
				if (t != null) {
					i == 0 ? a = j[e] : o = j[e], t = "" + t;
					let n = t.indexOf("\n") == -1 ? [t] : t.split(/\n/gm);
					for (let e = 0; e < n.length; e++) {
						let t = n[e];
						D ? (d.save(), d.translate(a, o + e * A), d.rotate(D), d.fillText(t, 0, 0), d.restore()) : d.fillText(t, a, o + e * A);
					}
				}
			}
			S.show && ir(j, S.filter(r, v, e, f, x), i, n, O, T, W(S.width * z, 3), S.stroke(r, e), S.dash, S.cap);
			let ne = t.grid;
			ne.show && ir(j, ne.filter(r, v, e, f, x), i, i == 0 ? 2 : 1, i == 0 ? Ae : ke, i == 0 ? Me : je, W(ne.width * z, 3), ne.stroke(r, e), ne.dash, ne.cap), C.show && ir([O], [1], +(i == 0), i == 0 ? 1 : 2, i == 1 ? Ae : ke, i == 1 ? Me : je, W(C.width * z, 3), C.stroke(r, e), C.dash, C.cap);
		}
		Q("drawAxes");
	}
	function vr(e) {
		v.forEach((t, n) => {
			n > 0 && (t._paths = null, e && (i == 1 ? (t.min = null, t.max = null) : t.facets.forEach((e) => {
				e.min = null, e.max = null;
			})));
		});
	}
	let br = !1, xr = !1, Sr = [];
	function Cr() {
		xr = !1;
		for (let e = 0; e < Sr.length; e++) Q(...Sr[e]);
		Sr.length = 0;
	}
	function wr() {
		br ||= (Tr(Dr), !0);
	}
	function Er(e, t = !1) {
		br = !0, xr = t, e(r), Dr(), t && Sr.length > 0 && queueMicrotask(Cr);
	}
	r.batch = Er;
	function Dr() {
		if (Ne &&= (jn(), !1), Fe &&= (Ve(), !1), Pe) {
			if (B(p, jt, Ce), B(p, kt, we), B(p, Dt, L), B(p, Ot, R), B(m, jt, Ce), B(m, kt, we), B(m, Dt, L), B(m, Ot, R), B(f, Dt, xe), B(f, Ot, Se), u.width = Fn(xe * z), u.height = Fn(Se * z), y.forEach(({ _el: e, _show: t, _size: n, _pos: r, side: i }) => {
				if (e != null) {
					if (t) {
						let t = i === 3 || i === 0 ? n : 0, a = i % 2 == 1;
						B(e, a ? "left" : "top", r - t), B(e, a ? "width" : "height", n), B(e, a ? "top" : "left", a ? we : Ce), B(e, a ? "height" : "width", a ? R : L), $t(e, ht);
					} else Qt(e, ht);
				}
			}), an = sn = ln = mn = hn = gn = _n = vn = un = null, wn = 1, Oi(!0), Ce != Te || we != Ee || L != De || R != Oe) {
				vr(!1);
				let e = L / De, t = R / Oe;
				if (oe && !Ie && N.left >= 0) {
					N.left *= e, N.top *= t, jr && rn(jr, Fn(N.left), 0, L, R), Mr && rn(Mr, 0, Fn(N.top), L, R);
					for (let n = 0; n < Xe.length; n++) {
						let r = Xe[n];
						r != null && (Ze[n] *= e, Qe[n] *= t, rn(r, In(Ze[n]), In(Qe[n]), L, R));
					}
				}
				if (X.show && !Le && X.left >= 0 && X.width > 0) {
					X.left *= e, X.width *= e, X.top *= t, X.height *= t;
					for (let e in zi) B(Wr, e, X[e]);
				}
				Te = Ce, Ee = we, De = L, Oe = R;
			}
			Q("setSize"), Pe = !1;
		}
		xe > 0 && Se > 0 && (d.clearRect(0, 0, u.width, u.height), Q("drawClear"), w.forEach((e) => e()), Q("draw")), X.show && Le && (Gr(X), Le = !1), oe && Ie && (Ei(null, !0, !1), Ie = !1), M.show && M.live && Re && (wi(), Re = !1), c || (c = !0, r.status = 1, Q("ready")), Xt = !1, br = !1;
	}
	r.redraw = (e, t) => {
		Fe = t || !1, e === !1 ? wr() : qr(S, D.min, D.max);
	};
	function Or(e, n) {
		let i = b[e];
		if (i.from == null) {
			if (Vt == 0) {
				let t = i.range(r, n.min, n.max, e);
				n.min = t[0], n.max = t[1];
			}
			if (n.min > n.max) {
				let e = n.min;
				n.min = n.max, n.max = e;
			}
			if (Vt > 1 && n.min != null && n.max != null && n.max - n.min < 1e-16) return;
			e == S && i.distr == 2 && Vt > 0 && (n.min = pn(n.min, t[0]), n.max = pn(n.max, t[0]), n.min == n.max && n.max++), A[e] = n, Ne = !0, wr();
		}
	}
	r.setScale = Or;
	let kr, Ar, jr, Mr, Nr, Pr, Fr, Ir, Rr, zr, K, q, Br = !1, Vr = N.drag, J = Vr.x, Y = Vr.y;
	oe && (N.x && (kr = tn(_t, m)), N.y && (Ar = tn(vt, m)), D.ori == 0 ? (jr = kr, Mr = Ar) : (jr = Ar, Mr = kr), K = N.left, q = N.top);
	let X = r.select = G({
		show: !0,
		over: !0,
		left: 0,
		width: 0,
		top: 0,
		height: 0
	}, e.select), Wr = X.show ? tn(gt, X.over ? m : p) : null;
	function Gr(e, t) {
		if (X.show) {
			for (let t in e) X[t] = e[t], t in zi && B(Wr, t, e[t]);
			t !== !1 && Q("setSelect");
		}
	}
	r.setSelect = Gr;
	function Kr(e) {
		if (v[e].show) P && $t(le[e], ht);
		else if (P && Qt(le[e], ht), oe) {
			let t = Ye ? Xe[0] : Xe[e];
			t != null && rn(t, -10, -10, L, R);
		}
	}
	function qr(e, t, n) {
		Or(e, {
			min: t,
			max: n
		});
	}
	function Jr(e, t, n, a) {
		t.focus != null && hi(e), t.show != null && v.forEach((n, r) => {
			r > 0 && (e == r || e == null) && (n.show = t.show, Kr(r), i == 2 ? (qr(n.facets[0].scale, null, null), qr(n.facets[1].scale, null, null)) : qr(n.scale, null, null), wr());
		}), n !== !1 && Q("setSeries", e, t), a && ga("setSeries", r, e, t);
	}
	r.setSeries = Jr;
	function Yr(e, t) {
		G(x[e], t);
	}
	function Xr(e, t) {
		e.fill = U(e.fill || null), e.dir = V(e.dir, -1), t ??= x.length, x.splice(t, 0, e);
	}
	function Z(e) {
		e == null ? x.length = 0 : x.splice(e, 1);
	}
	r.addBand = Xr, r.setBand = Yr, r.delBand = Z;
	function Zr(e, t) {
		v[e].alpha = t, oe && Xe[e] != null && (Xe[e].style.opacity = t), P && le[e] && (le[e].style.opacity = t);
	}
	let si, di, fi, mi = { focus: !0 };
	function hi(e) {
		if (e != fi) {
			let t = e == null, n = qe.alpha != 1;
			v.forEach((r, a) => {
				if (i == 1 || a > 0) {
					let i = t || a == 0 || a == e;
					r._focus = t ? null : i, n && Zr(a, i ? 1 : qe.alpha);
				}
			}), fi = e, n && wr();
		}
	}
	P && Je && ye(zt, I, (e) => {
		N._lock || (Ge(e), fi != null && Jr(null, mi, !0, $.setSeries));
	});
	function gi(e, t, n) {
		let r = b[t];
		n && (e = e / z - (r.ori == 1 ? we : Ce));
		let i = L;
		r.ori == 1 && (i = R, e = i - e), r.dir == -1 && (e = i - e);
		let a = r._min, o = r._max, s = e / i, c = a + (o - a) * s, l = r.distr;
		return l == 3 ? zn(10, c) : l == 4 ? Un(c, r.asinh) : l == 100 ? r.bwd(c) : c;
	}
	function _i(e, n) {
		return pn(gi(e, S, n), t[0], Ht, Ut);
	}
	r.valToIdx = (e) => pn(e, t[0]), r.posToIdx = _i, r.posToVal = gi, r.valToPos = (e, t, n) => b[t].ori == 0 ? a(e, b[t], n ? je : L, n ? ke : 0) : o(e, b[t], n ? Me : R, n ? Ae : 0), r.setCursor = (e, t, n) => {
		K = e.left, q = e.top, Ei(null, t, n);
	};
	function vi(e, t) {
		B(Wr, jt, X.left = e), B(Wr, Dt, X.width = t);
	}
	function yi(e, t) {
		B(Wr, kt, X.top = e), B(Wr, Ot, X.height = t);
	}
	let bi = D.ori == 0 ? vi : yi, xi = D.ori == 1 ? vi : yi;
	function Ci() {
		if (P && M.live) for (let e = +(i == 2); e < v.length; e++) {
			if (e == 0 && fe) continue;
			let t = M.values[e], n = 0;
			for (let r in t) ue[e][n++].firstChild.nodeValue = t[r];
		}
	}
	function wi(e, t) {
		if (e != null && (e.idxs ? e.idxs.forEach((e, t) => {
			ae[t] = e;
		}) : pr(e.idx) || ae.fill(e.idx), M.idx = ae[0]), P && M.live) {
			for (let e = 0; e < v.length; e++) (e > 0 || i == 1 && !fe) && Ti(e, ae[e]);
			Ci();
		}
		Re = !1, t !== !1 && Q("setLegend");
	}
	r.setLegend = wi;
	function Ti(e, n) {
		let i = v[e], a = e == 0 && O == 2 ? Yt : t[e], o;
		fe ? o = i.values(r, e, n) ?? pe : (o = i.value(r, n == null ? null : a[n], e, n), o = o == null ? pe : { _: o }), M.values[e] = o;
	}
	function Ei(e, n, a) {
		Rr = K, zr = q, [K, q] = N.move(r, K, q), N.left = K, N.top = q, oe && (jr && rn(jr, Fn(K), 0, L, R), Mr && rn(Mr, 0, Fn(q), L, R));
		let o, s = Ht > Ut;
		si = H, di = null;
		let c = D.ori == 0 ? L : R, l = D.ori == 1 ? L : R;
		if (K < 0 || Vt == 0 || s) {
			o = N.idx = null;
			for (let e = 0; e < v.length; e++) {
				let t = Xe[e];
				t != null && rn(t, -10, -10, L, R);
			}
			Je && Jr(null, mi, !0, e == null && $.setSeries), M.live && (ae.fill(o), Re = !0);
		} else {
			let e, n, a;
			i == 1 && (e = D.ori == 0 ? K : q, n = gi(e, S), o = N.idx = pn(n, t[0], Ht, Ut), a = k(t[0][o], D, c, 0));
			let s = -10, u = -10, d = 0, f = 0, p = !0, m = "", h = "";
			for (let e = +(i == 2); e < v.length; e++) {
				let g = v[e], _ = ae[e], y = _ == null ? null : i == 1 ? t[e][_] : t[e][1][_], x = N.dataIdx(r, e, o, n), S = x == null ? null : i == 1 ? t[e][x] : t[e][1][x];
				if (Re = Re || S != y || x != _, ae[e] = x, e > 0 && g.show) {
					let n = x == null ? -10 : x == o ? a : k(i == 1 ? t[0][x] : t[e][0][x], D, c, 0), _ = S == null ? -10 : ee(S, i == 1 ? b[g.scale] : b[g.facets[1].scale], l, 0);
					if (Je && S != null) {
						let t = D.ori == 1 ? K : q, n = Nn(qe.dist(r, e, x, _, t));
						if (n < si) {
							let r = qe.bias;
							if (r != 0) {
								let i = gi(t, g.scale), a = S >= 0 ? 1 : -1, o = i >= 0 ? 1 : -1;
								o == a && (o == 1 ? r == 1 ? S >= i : S <= i : r == 1 ? S <= i : S >= i) && (si = n, di = e);
							} else si = n, di = e;
						}
					}
					if (Re || Ye) {
						let t, i;
						D.ori == 0 ? (t = n, i = _) : (t = _, i = n);
						let a, o, c, l, g, v, y = !0, b = Ke.bbox;
						if (b != null) {
							y = !1;
							let t = b(r, e);
							c = t.left, l = t.top, a = t.width, o = t.height;
						} else c = t, l = i, a = o = Ke.size(r, e);
						if (v = Ke.fill(r, e), g = Ke.stroke(r, e), Ye) e == di && si <= qe.prox && (s = c, u = l, d = a, f = o, p = y, m = v, h = g);
						else {
							let t = Xe[e];
							t != null && (Ze[e] = c, Qe[e] = l, cn(t, a, o, y), on(t, v, g), rn(t, In(c), In(l), L, R));
						}
					}
				}
			}
			if (Ye) {
				let e = qe.prox;
				if (Re || (fi == null ? si <= e : si > e || di != fi)) {
					let e = Xe[0];
					e != null && (Ze[0] = s, Qe[0] = u, cn(e, d, f, p), on(e, m, h), rn(e, In(s), In(u), L, R));
				}
			}
		}
		if (X.show && Br) {
			if (e != null) {
				let [t, n] = $.scales, [r, i] = $.match, [a, o] = e.cursor.sync.scales, s = e.cursor.drag;
				if (J = s._x, Y = s._y, J || Y) {
					let { left: s, top: u, width: d, height: f } = e.select, p = e.scales[a].ori, m = e.posToVal, h, g, _, v, y, x = t != null && r(t, a), S = n != null && i(n, o);
					x && J ? (p == 0 ? (h = s, g = d) : (h = u, g = f), _ = b[t], v = k(m(h, a), _, c, 0), y = k(m(h + g, a), _, c, 0), bi(Ln(v, y), Nn(y - v))) : bi(0, c), S && Y ? (p == 1 ? (h = s, g = d) : (h = u, g = f), _ = b[n], v = ee(m(h, o), _, l, 0), y = ee(m(h + g, o), _, l, 0), xi(Ln(v, y), Nn(y - v))) : xi(0, l);
				} else Bi();
			} else {
				let e = Nn(Rr - Nr), t = Nn(zr - Pr);
				if (D.ori == 1) {
					let n = e;
					e = t, t = n;
				}
				J = Vr.x && e >= Vr.dist, Y = Vr.y && t >= Vr.dist;
				let n = Vr.uni;
				n == null ? Vr.x && Vr.y && (J || Y) && (J = Y = !0) : J && Y && (J = e >= n, Y = t >= n, !J && !Y && (t > e ? Y = !0 : J = !0));
				let r, i;
				J && (D.ori == 0 ? (r = Fr, i = K) : (r = Ir, i = q), bi(Ln(r, i), Nn(i - r)), Y || xi(0, l)), Y && (D.ori == 1 ? (r = Fr, i = K) : (r = Ir, i = q), xi(Ln(r, i), Nn(i - r)), J || bi(0, c)), !J && !Y && (bi(0, 0), xi(0, 0));
			}
		}
		if (Vr._x = J, Vr._y = Y, e == null) {
			if (a) {
				if (ma != null) {
					let [e, t] = $.scales;
					$.values[0] = e == null ? null : gi(D.ori == 0 ? K : q, e), $.values[1] = t == null ? null : gi(D.ori == 1 ? K : q, t);
				}
				ga(Ft, r, K, q, L, R, o);
			}
			if (Je) {
				let e = a && $.setSeries, t = qe.prox;
				fi == null ? si <= t && Jr(di, mi, !0, e) : si > t ? Jr(null, mi, !0, e) : di != fi && Jr(di, mi, !0, e);
			}
		}
		Re && (M.idx = o, wi()), n !== !1 && Q("setCursor");
	}
	let Di = null;
	Object.defineProperty(r, "rect", { get() {
		return Di ?? Oi(!1), Di;
	} });
	function Oi(e = !1) {
		e ? Di = null : (Di = m.getBoundingClientRect(), Q("syncRect", Di));
	}
	function ki(e, t, n, r, i, a, o) {
		N._lock || Br && e != null && e.movementX == 0 && e.movementY == 0 || (Ri(e, t, n, r, i, a, o, !1, e != null), e == null ? Ei(t, !0, !1) : Ei(null, !0, !0));
	}
	function Ri(e, t, n, i, a, o, c, l, u) {
		if (Di ?? Oi(!1), Ge(e), e != null) n = e.clientX - Di.left, i = e.clientY - Di.top;
		else {
			if (n < 0 || i < 0) {
				K = -10, q = -10;
				return;
			}
			let [e, r] = $.scales, c = t.cursor.sync, [l, u] = c.values, [d, f] = c.scales, [p, m] = $.match, h = t.axes[0].side % 2 == 1, g = D.ori == 0 ? L : R, _ = D.ori == 1 ? L : R, v = h ? o : a, y = h ? a : o, x = h ? i : n, S = h ? n : i;
			if (n = d == null ? x / v * g : p(e, d) ? s(l, b[e], g, 0) : -10, i = f == null ? S / y * _ : m(r, f) ? s(u, b[r], _, 0) : -10, D.ori == 1) {
				let e = n;
				n = i, i = e;
			}
		}
		u && (t == null || t.cursor.event.type == Ft) && ((n <= 1 || n >= L - 1) && (n = nr(n, L)), (i <= 1 || i >= R - 1) && (i = nr(i, R))), l ? (Nr = n, Pr = i, [Fr, Ir] = N.move(r, n, i)) : (K = n, q = i);
	}
	let zi = {
		width: 0,
		height: 0,
		left: 0,
		top: 0
	};
	function Bi() {
		Gr(zi, !1);
	}
	let Vi, Hi, Ji, Yi;
	function Xi(e, t, n, i, a, o, s) {
		Br = !0, J = Y = Vr._x = Vr._y = !1, Ri(e, t, n, i, a, o, s, !0, !1), e != null && (ye(Lt, qt, na, !1), ga(It, r, Fr, Ir, L, R, null));
		let { left: c, top: l, width: u, height: d } = X;
		Vi = c, Hi = l, Ji = u, Yi = d;
	}
	function na(e, t, n, i, a, o, s) {
		Br = Vr._x = Vr._y = !1, Ri(e, t, n, i, a, o, s, !1, !0);
		let { left: c, top: l, width: u, height: d } = X, f = u > 0 || d > 0, p = Vi != c || Hi != l || Ji != u || Yi != d;
		if (f && p && Gr(X), Vr.setScale && f && p) {
			let e = c, t = u, n = l, r = d;
			if (D.ori == 1 && (e = l, t = d, n = c, r = u), J && qr(S, gi(e, S), gi(e + t, S)), Y) for (let e in b) {
				let t = b[e];
				e != S && t.from == null && t.min != H && qr(e, gi(n + r, e), gi(n, e));
			}
			Bi();
		} else N.lock && (N._lock = !N._lock, Ei(t, !0, e != null));
		e != null && (be(Lt, qt), ga(Lt, r, K, q, L, R, null));
	}
	function oa(e, t, n, r, i, a, o) {
		if (N._lock) return;
		Ge(e);
		let s = Br;
		if (Br) {
			let e = !0, t = !0, n, r;
			D.ori == 0 ? (n = J, r = Y) : (n = Y, r = J), n && r && (e = K <= 10 || K >= L - 10, t = q <= 10 || q >= R - 10), n && e && (K = K < Fr ? 0 : L), r && t && (q = q < Ir ? 0 : R), Ei(null, !0, !0), Br = !1;
		}
		K = -10, q = -10, ae.fill(null), Ei(null, !0, !0), s && (Br = s);
	}
	function sa(e, t, n, i, a, o, s) {
		N._lock || (Ge(e), nn(), Bi(), e != null && ga(Bt, r, K, q, L, R, null));
	}
	function la() {
		y.forEach(Xa), ze(r.width, r.height, !0);
	}
	dn(Wt, Jt, la);
	let ua = {};
	ua.mousedown = Xi, ua.mousemove = ki, ua.mouseup = na, ua.dblclick = sa, ua.setSeries = (e, t, n, i) => {
		let a = $.match[2];
		n = a(r, t, n), n != -1 && Jr(n, i, !0, !1);
	}, oe && (ye(It, m, Xi), ye(Ft, m, ki), ye(Rt, m, (e) => {
		Ge(e), Oi(!1);
	}), ye(zt, m, oa), ye(Bt, m, sa), Pa.add(r), r.syncRect = Oi);
	let da = r.hooks = e.hooks || {};
	function Q(e, t, n) {
		xr ? Sr.push([
			e,
			t,
			n
		]) : e in da && da[e].forEach((e) => {
			e.call(null, r, t, n);
		});
	}
	(e.plugins || []).forEach((e) => {
		for (let t in e.hooks) da[t] = (da[t] || []).concat(e.hooks[t]);
	});
	let pa = (e, t, n) => n, $ = G({
		key: null,
		setSeries: !1,
		filters: {
			pub: Qn,
			sub: Qn
		},
		scales: [S, v[1] ? v[1].scale : null],
		match: [
			$n,
			$n,
			pa
		],
		values: [null, null]
	}, N.sync);
	$.match.length == 2 && $.match.push(pa), N.sync = $;
	let ma = $.key, ha = ra(ma);
	function ga(e, t, n, r, i, a, o) {
		$.filters.pub(e, t, n, r, i, a, o) && ha.pub(e, t, n, r, i, a, o);
	}
	ha.sub(r);
	function _a(e, t, n, r, i, a, o) {
		$.filters.sub(e, t, n, r, i, a, o) && ua[e](null, t, n, r, i, a, o);
	}
	r.pub = _a;
	function va() {
		ha.unsub(r), Pa.delete(r), ve.clear(), fn(Wt, Jt, la), l.remove(), I?.remove(), Q("destroy");
	}
	r.destroy = va;
	function ya() {
		Q("init", e, t), Zt(t || e.data, !1), A[S] ? Or(S, A[S]) : nn(), Le = X.show && (X.width > 0 || X.height > 0), Ie = Re = !0, ze(e.width, e.height);
	}
	return v.forEach(et), y.forEach(it), n ? n instanceof HTMLElement ? (n.appendChild(l), ya()) : n(r, ya) : ya(), r;
}
Za.assign = G, Za.fmtNum = An, Za.rangeNum = En, Za.rangeLog = bn, Za.rangeAsinh = xn, Za.orient = oa, Za.pxRatio = z, Za.join = wr, Za.fmtDate = Lr, Za.tzDate = zr, Za.sync = ra;
{
	Za.addGap = da, Za.clipGaps = ua;
	let e = Za.paths = { points: Ca };
	e.linear = Da, e.stepped = Oa, e.bars = Aa, e.spline = Ma;
}
// ../page/src/ui/chart.ts
var Qa = 100, $a = 1 / 40, eo = 5, to = 4e3;
function no(e) {
	let t = Math.floor(e.length * $a / 2), n = [0], r = [0];
	for (let t of e) {
		let e = t !== null && Number.isFinite(t);
		n.push((n.at(-1) ?? 0) + (e ? t : 0)), r.push((r.at(-1) ?? 0) + +!!e);
	}
	return e.map((i, a) => {
		let o = Math.max(0, a - t), s = Math.min(e.length, a + t + 1), c = (r[s] ?? 0) - (r[o] ?? 0);
		return c === 0 ? null : ((n[s] ?? 0) - (n[o] ?? 0)) / c;
	});
}
var ro = class {
	#e;
	#t;
	#n = [];
	#r = [];
	#i = 0;
	constructor(e) {
		this.#e = e;
		let t = (t) => () => getComputedStyle(e).getPropertyValue(`--${t}`).trim(), n = `11px ${t("mono")()}`, r = {
			stroke: t("muted"),
			font: n,
			grid: {
				stroke: t("rule"),
				width: 1
			},
			ticks: { show: !1 }
		}, i = { points: { show: !1 } };
		this.#t = new Za({
			width: e.clientWidth || 300,
			height: e.clientHeight || 200,
			padding: [
				8,
				8,
				0,
				0
			],
			legend: { show: !1 },
			scales: { x: { time: !1 } },
			cursor: {
				drag: {
					x: !1,
					y: !1
				},
				points: { show: !1 }
			},
			axes: [{
				...r,
				size: 26,
				space: 60
			}, {
				...r,
				size: 44,
				space: 34
			}],
			series: [
				{},
				{
					...i,
					label: "loss",
					stroke: t("faint"),
					width: 1
				},
				{
					...i,
					label: "smoothed",
					stroke: t("ink"),
					width: 1.75
				},
				{
					label: "held-out",
					stroke: t("accent"),
					width: 1.75,
					spanGaps: !0,
					points: {
						show: !0,
						size: eo,
						fill: t("accent")
					}
				}
			]
		}, [
			[],
			[],
			[],
			[]
		], e), new ResizeObserver(() => {
			this.#t.setSize({
				width: e.clientWidth,
				height: e.clientHeight
			});
		}).observe(e), matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
			this.#t.redraw(!1, !0);
		});
	}
	reset(e = [], t = []) {
		this.#n = [...e], this.#r = [...t], this.#o();
	}
	addLosses(e) {
		this.#n.push(...e), this.#n.length > to && (this.#n = this.#n.filter((e, t) => t % 2 == 1)), this.#a();
	}
	addHeldout(e, t) {
		this.#r.push([e, t]), this.#a();
	}
	#a() {
		this.#i === 0 && (this.#i = window.setTimeout(() => {
			this.#i = 0, requestAnimationFrame(() => this.#o());
		}, Qa));
	}
	#o() {
		let e = new Map(this.#r), t = new Map(this.#n), n = [.../* @__PURE__ */ new Set([...t.keys(), ...e.keys()])].sort((e, t) => e - t), r = n.map((e) => t.get(e) ?? null), i = n.map((t) => e.get(t) ?? null);
		this.#t.setData([
			n,
			r,
			no(r),
			i
		]);
		let [a, o] = this.#n.at(-1) ?? [], s = this.#r.at(-1)?.[1];
		this.#e.setAttribute("aria-label", a === void 0 || o === void 0 ? "Loss over steps: nothing yet" : `Loss over steps: ${o.toFixed(3)} at step ${a}` + (s === void 0 ? "" : `, held-out ${s.toFixed(3)}`));
	}
}, io = class {
	#e;
	#t = p("dl", { class: "figures" });
	#n;
	#r = p("div", { class: "bars" });
	#i = () => this.#a();
	constructor(e, t) {
		this.#e = e;
		let n = p("div", {
			class: "loss",
			role: "img"
		}), r = p("p", {
			class: "keys",
			"aria-hidden": !0
		}, p("span", {}, "loss of a step"), p("span", { class: "smoothed" }, "smoothed"), p("span", { class: "heldout" }, "held-out"));
		t.append(this.#t, r, n, this.#r), this.#n = new ro(n), e.on("change:figures", this.#i), this.#a();
	}
	restyle() {
		this.#a();
	}
	dispose() {
		this.#e.off("change:figures", this.#i);
	}
	#a() {
		let e = this.#e.get("figures");
		this.#n.reset(oo(this.#e.get("losses")), oo(this.#e.get("heldout"))), this.#t.replaceChildren(Je("Step", `${e.step}`), Je("Loss", ao(e.loss)), Je("Held-out", ao(e.heldout)), Je("Time of a step", e.step_s === null ? "–" : d(e.step_s))), this.#r.replaceChildren(...so(e));
	}
}, ao = (e) => e === null ? "–" : e.toFixed(3);
function oo(e) {
	let t = Re(e);
	return Array.from({ length: t.length / 2 }, (e, n) => [t[2 * n] ?? 0, t[2 * n + 1] ?? 0]);
}
function so({ planned_bytes: t, measured_bytes: n, by_class: r }) {
	let i = Math.max(t, n, 1), a = (e, t, n) => {
		let r = p("i", {
			class: e,
			title: n
		});
		return r.style.width = `${100 * t / i}%`, r;
	}, o = e.filter((e) => (r[e] ?? 0) > 0).map((e) => a(`swatch-${e}`, r[e], `${e}: ${s(r[e])}`)), c = n - t, u = c === 0 ? "0 B off" : `${l(Math.abs(c))} B ${c > 0 ? "more" : "less"}`;
	return [
		p("span", {}, "Planned"),
		p("div", { class: "bar" }, ...o),
		p("span", { "data-figure": "Planned" }, s(t)),
		p("span", {}, "Measured"),
		p("div", { class: "bar" }, a("measured", n, `measured: ${s(n)}`)),
		p("span", { "data-figure": "Measured" }, `${s(n)}, ${u}`)
	];
}
// ../page/node_modules/uplot/dist/uPlot.min.css?inline
var co = ".uplot,.uplot *,.uplot :before,.uplot :after{box-sizing:border-box}.uplot{width:min-content;font-family:system-ui,-apple-system,Segoe UI,Roboto,Helvetica Neue,Arial,Noto Sans,sans-serif,Apple Color Emoji,Segoe UI Emoji,Segoe UI Symbol,Noto Color Emoji;line-height:1.5}.u-title{text-align:center;font-size:18px;font-weight:700}.u-wrap{-webkit-user-select:none;user-select:none;position:relative}.u-over,.u-under{position:absolute}.u-under{overflow:hidden}.uplot canvas{width:100%;height:100%;display:block;position:relative}.u-axis{position:absolute}.u-legend{text-align:center;margin:auto;font-size:14px}.u-inline{display:block}.u-inline *{display:inline-block}.u-inline tr{margin-right:16px}.u-legend th{font-weight:600}.u-legend th>*{vertical-align:middle;display:inline-block}.u-legend .u-marker{width:1em;height:1em;margin-right:4px;background-clip:padding-box!important}.u-inline.u-live th:after{content:\":\";vertical-align:middle}.u-inline:not(.u-live) .u-value{display:none}.u-series>*{padding:4px}.u-series th{cursor:pointer}.u-legend .u-off>*{opacity:.3}.u-select{pointer-events:none;background:#00000012;position:absolute}.u-cursor-x,.u-cursor-y{pointer-events:none;will-change:transform;position:absolute;top:0;left:0}.u-hz .u-cursor-x,.u-vt .u-cursor-y{border-right:1px dashed #607d8b;height:100%}.u-hz .u-cursor-y,.u-vt .u-cursor-x{border-bottom:1px dashed #607d8b;width:100%}.u-cursor-pt{pointer-events:none;will-change:transform;border:0 solid;border-radius:50%;position:absolute;top:0;left:0;background-clip:padding-box!important}.u-axis.u-off,.u-select.u-off,.u-cursor-x.u-off,.u-cursor-y.u-off,.u-cursor-pt.u-off{display:none}", lo = "[hidden]{display:none!important}:focus-visible{outline:2px solid var(--focus);outline-offset:2px}.unseen{clip-path:inset(50%);white-space:nowrap;width:1px;height:1px;position:absolute;overflow:hidden}", uo = ".budget{grid-template-columns:auto minmax(0,1fr) 11ch;align-items:center;gap:14px;margin-bottom:12px;display:grid}.budget label{font-size:14px;font-weight:600}.budget input{cursor:pointer;appearance:none;background:0 0;width:100%;height:32px;margin:0}.budget input:disabled{cursor:default;opacity:.4}.budget input::-webkit-slider-runnable-track{background:var(--faint);border-radius:2px;height:3px}.budget input::-moz-range-track{background:var(--faint);border-radius:2px;height:3px}.budget input::-webkit-slider-thumb{border:3px solid var(--surface);background:var(--accent);width:20px;height:20px;box-shadow:0 0 0 1px var(--accent);appearance:none;border-radius:50%;margin-top:-8.5px}.budget input::-moz-range-thumb{border:3px solid var(--surface);background:var(--accent);width:14px;height:14px;box-shadow:0 0 0 1px var(--accent);border-radius:50%}.budget output{font:400 15px/1.3 var(--mono);text-align:right;white-space:nowrap}.refusal{border:1px solid var(--rule);border-left:3px solid var(--accent);border-radius:var(--radius);flex-wrap:wrap;align-items:center;gap:8px 14px;margin-bottom:12px;padding:10px 14px;font-size:14px;display:flex}.refusal p{flex:280px}.figures{border-top:1px solid var(--rule);border-bottom:1px solid var(--rule);grid-template-columns:repeat(auto-fit,minmax(104px,1fr));gap:10px 18px;margin-bottom:8px;padding:10px 0 12px;display:grid}.figures dt{color:var(--muted);font-size:12px;line-height:1.35}.figures dd{font:400 15px/1.35 var(--mono)}.figures dd small{color:var(--muted);font:400 12px/1.35 var(--sans);display:block}.arena-row{grid-template-columns:minmax(0,1fr) 232px;gap:20px;display:grid}.arena{cursor:crosshair;touch-action:pan-y;height:400px;position:relative}.arena canvas{width:100%;height:100%;position:absolute;inset:0}.arena canvas+canvas{pointer-events:none}.legend{flex-wrap:wrap;gap:6px;margin:6px 0 0 58px;display:flex}.legend button{color:var(--ink);font:inherit;cursor:pointer;background:0 0;border:1px solid #0000;border-radius:4px;align-items:baseline;gap:7px;padding:3px 8px;font-size:13px;display:flex}.legend button:hover{border-color:var(--rule)}.legend button[aria-pressed=true]{border-color:var(--ink)}.legend i{border-radius:2px;width:10px;height:10px}.legend b{color:var(--muted);font:400 12px/1 var(--mono)}.swatch-weight{background:var(--class-weight)}.swatch-frozen{background:var(--class-frozen)}.swatch-optimizer{background:var(--class-optimizer)}.swatch-gradient{background:var(--class-gradient)}.swatch-activation{background:var(--class-activation)}.swatch-workspace{background:var(--class-workspace)}.swatch-input{background:var(--class-input)}.detail{padding-top:16px;font-size:13px;line-height:1.45}.detail h3{font:400 14px/1.35 var(--mono);overflow-wrap:anywhere;margin:0 0 8px}.detail dt{color:var(--muted);margin-top:7px;font-size:12px}.detail dd{overflow-wrap:anywhere}.detail .hint{max-width:30ch}.peak-table{margin-top:12px;font-size:13px}.peak-table summary{color:var(--muted);cursor:pointer}.peak-table .scroll{max-height:320px;margin-top:8px;overflow:auto}.peak-table table{border-collapse:collapse;width:100%}.peak-table caption{color:var(--muted);text-align:left;padding-bottom:6px}.peak-table th,.peak-table td{border-bottom:1px solid var(--rule);text-align:left;white-space:nowrap;padding:3px 14px 3px 0}.peak-table td:nth-child(n+4),.peak-table th:nth-child(n+4){text-align:right}.peak-table td{font-family:var(--mono);font-size:12px}@media (max-width:860px){.arena-row{grid-template-columns:minmax(0,1fr);gap:8px}.detail{min-height:64px;padding-top:4px}.detail .hint{max-width:none}}@media (max-width:720px){.arena{height:330px}.legend{margin-left:0}.budget{grid-template-columns:auto minmax(0,1fr);gap:0 12px}.budget input{order:3;grid-column:1/-1;height:40px}.figures{grid-template-columns:repeat(2,minmax(0,1fr))}}", fo = ":root{--lightningcss-light:initial;--lightningcss-dark: ;color-scheme:light dark;--sans:\"IBM Plex Sans\", system-ui, sans-serif;--mono:\"IBM Plex Mono\", ui-monospace, monospace;--ground:#f4f6f7;--surface:#fff;--ink:#161b20;--muted:#566470;--faint:#b3bec7;--rule:#dfe5e9;--edge:#8695a1;--accent:#c73e1d;--accent-strong:#a93216;--on-accent:#fff;--focus:#1a5fd0;--class-weight:#3f6ea8;--class-frozen:#86a6cc;--class-optimizer:#55a39b;--class-gradient:#8b69b0;--class-activation:#dba33a;--class-workspace:#a08468;--class-input:#a5b0b8;--gap:24px;--radius:6px}@media (prefers-color-scheme:dark){:root{--lightningcss-light: ;--lightningcss-dark:initial;--ground:#0f1316;--surface:#161b1f;--ink:#e6ebee;--muted:#97a4ae;--faint:#46535d;--rule:#273038;--edge:#66747f;--accent:#ff7a55;--accent-strong:#ff9273;--on-accent:#1c0d07;--focus:#7db1ff;--class-weight:#5f92d0;--class-frozen:#3c5f8c;--class-optimizer:#4f9d95;--class-gradient:#a184c6;--class-activation:#d6a03c;--class-workspace:#9a7d62;--class-input:#76838d}}", po = ":host{--lightningcss-light:initial;--lightningcss-dark: ;color-scheme:light;display:block}:host(.dark){--lightningcss-light: ;--lightningcss-dark:initial;color-scheme:dark}*,:before,:after{box-sizing:border-box}h2,h3,p,dl,dd{margin:0}.widget{border:1px solid var(--rule);border-radius:var(--radius);background:var(--surface);color:var(--ink);font:400 14px/1.5 var(--sans);padding:14px 18px 12px;container:widget/inline-size}.head{flex-wrap:wrap;align-items:baseline;gap:0 16px;margin-bottom:6px;display:flex}h2{font-size:15px;font-weight:600}h3{font-size:14px;font-weight:600}.hint,.unit{color:var(--muted);font-size:13px}.why{margin-bottom:10px;font-size:13px}.arena{height:340px}.arena:focus-visible{outline-offset:0}.tables{grid-template-columns:minmax(0,1fr);gap:2px;display:grid}.peak-table{margin-top:4px}.peak-table .numbers{width:auto}.peak-table .numbers td:nth-child(n+2),.peak-table .numbers th:nth-child(n+2){text-align:right}.peak-table th[scope=row]{font-weight:400}.peak-table th i{border-radius:2px;width:10px;height:10px;margin-right:7px;display:inline-block}.pair{grid-template-columns:repeat(2,minmax(0,1fr));gap:18px;display:grid}.difference{margin-top:14px;overflow-x:auto}.difference table{border-collapse:collapse;font-size:13px}.difference th,.difference td{border-bottom:1px solid var(--rule);text-align:left;vertical-align:baseline;padding:3px 22px 3px 0}.difference th[scope=row]{white-space:nowrap;font-weight:400}.difference th i{border-radius:2px;width:10px;height:10px;margin-right:7px;display:inline-block}.difference td{font-family:var(--mono);white-space:nowrap;font-size:12px}.difference .choice td{white-space:normal}.figures:first-child{border-top:0;padding-top:0}.loss{height:240px;overflow:hidden}.keys{color:var(--muted);flex-wrap:wrap;gap:2px 16px;font-size:13px;display:flex}.keys span:before{content:\"\";vertical-align:middle;background:var(--faint);width:14px;height:2px;margin-right:6px;display:inline-block}.keys .smoothed:before{background:var(--ink)}.keys .heldout:before{background:var(--accent)}.bars{grid-template-columns:auto minmax(0,1fr) auto;align-items:center;gap:6px 12px;margin-top:10px;font-size:13px;display:grid}.bars span:nth-child(3n+1){color:var(--muted)}.bars span:nth-child(3n){font:400 13px/1.4 var(--mono);text-align:right}.bar{background:var(--rule);border-radius:2px;height:14px;display:flex;overflow:hidden}.bar i{height:100%}.bar .measured{background:var(--ink)}@container widget (width<=720px){.arena-row,.pair{grid-template-columns:minmax(0,1fr);gap:8px}.arena{height:280px}.legend{margin-left:0}.detail{min-height:64px;padding-top:4px}.detail .hint{max-width:none}}@container widget (width<=480px){.budget{grid-template-columns:auto minmax(0,1fr);gap:0 12px}.budget input{order:3;grid-column:1/-1}.figures{grid-template-columns:repeat(2,minmax(0,1fr))}}", mo = fo.replaceAll(":root", ":host").replace(/@media\s*\(prefers-color-scheme:\s*dark\)\s*\{\s*:host/, "@media all{:host(.dark)"), ho = new CSSStyleSheet();
ho.replaceSync([
	mo,
	lo,
	uo,
	co,
	po
].join("\n"));
function go(e) {
	let t = e.attachShadow({ mode: "open" });
	return t.adoptedStyleSheets = [ho], t;
}
// src/theme.ts
var _o = 127.5;
function vo(e) {
	let [t = 0, n = 0, r = 0] = (getComputedStyle(e).color.match(/[\d.]+/g) ?? []).map(Number);
	return .3 * t + .6 * n + .1 * r > _o;
}
function yo(e, t, n) {
	let r = !1, i = () => {
		let t = e.parentElement;
		if (t === null || !e.isConnected) return;
		let i = e.classList.contains("dark");
		e.classList.toggle("dark", vo(t)) === i && r || n(), r = !0;
	}, a = new MutationObserver(i);
	for (let e of [document.documentElement, document.body]) a.observe(e, { attributes: !0 });
	matchMedia("(prefers-color-scheme: dark)").addEventListener("change", i, { signal: t });
	let o = new ResizeObserver(i);
	o.observe(e), t.addEventListener("abort", () => {
		a.disconnect(), o.disconnect();
	}), i();
}
// src/index.ts
function bo(e, t) {
	switch (e.get("kind")) {
		case "plan": return new nt(e, t);
		case "compare": return new Ge(e, t);
		case "run": return new io(e, t);
	}
}
function xo({ model: e, el: t }) {
	let n = document.createElement("div");
	n.dataset.lmSuppressShortcuts = "true", t.append(n);
	let r = document.createElement("div");
	r.className = "widget", go(n).append(r);
	let i = bo(e, r), a = new AbortController();
	return yo(n, a.signal, () => i.restyle()), () => {
		a.abort(), i.dispose();
	};
}
var So = { render: xo };
export { So as default };
