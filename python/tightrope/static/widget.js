// ../page/src/engine/types.ts
var e = [
	"weight",
	"frozen",
	"optimizer",
	"gradient",
	"activation",
	"workspace",
	"input"
], t = [...e, "gaps"], n = [
	"B",
	"KiB",
	"MiB",
	"GiB",
	"TiB"
], r = [
	"",
	"k",
	"M",
	"G",
	"T"
], i = 1024, a = 1e3, o = 3;
function s(e, t, n) {
	let r = 0, i = e;
	for (; r < n.length - 1 && Number(i.toPrecision(o)) >= Math.min(t, a);) i /= t, r += 1;
	let s = Math.max(1, Math.floor(Math.log10(Math.max(i, 1))) + 1);
	return [r === 0 ? String(Math.round(i)) : i.toFixed(Math.max(0, o - s)), n[r] ?? ""];
}
function c(e) {
	return s(e, i, n).join(" ");
}
function l(e) {
	return c(e).replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ");
}
function u(e) {
	return Math.round(e).toString().replace(/\B(?=(\d{3})+$)/g, ",");
}
function d(e) {
	return s(e, a, r).join("");
}
function f(e) {
	if (e >= 1) return `${e.toFixed(e < 10 ? 2 : 1)} s`;
	let t = e * 1e3;
	return t > 0 && t < .1 ? `${(t * 1e3).toFixed(1)} µs` : t >= 100 ? `${Math.round(t)} ms` : t >= 1 ? `${t.toFixed(1)} ms` : `${t.toFixed(2)} ms`;
}
function p(e) {
	let t = e * 100;
	return t > 0 && t < .1 ? "< 0.1 %" : `${t.toFixed(+(t < 10))} %`;
}
// ../page/src/ui/dom.ts
function m(e, t = {}, ...n) {
	let r = document.createElement(e);
	for (let [e, n] of Object.entries(t)) n !== void 0 && n !== !1 && r.setAttribute(e, n === !0 ? "" : String(n));
	return r.append(...n), r;
}
function h(e) {
	return e.split("`").map((e, t) => t % 2 == 0 ? document.createTextNode(e) : m("code", {}, e));
}
function g(e, t) {
	e.textContent !== t && (e.textContent = t);
}
function _(e, t, n = "button") {
	let r = m("button", {
		type: "button",
		class: n
	}, e);
	return r.addEventListener("click", t), r;
}
// ../page/src/arena/legend.ts
var v = class {
	#e;
	#t;
	#n = null;
	constructor(e, t) {
		this.#e = e, this.#t = t;
	}
	show({ by_class: t }) {
		let n = e.filter((e) => (t[e] ?? 0) > 0), r = m("span", {}, m("i", { class: "swatch-gaps" }), "gaps", m("b", {}, c(t.gaps)));
		this.#e.replaceChildren(...n.map((e) => this.#r(e, t[e])), r);
	}
	#r(e, t) {
		let n = _("", () => this.#i(e), "");
		return n.dataset.class = e, n.setAttribute("aria-pressed", String(this.#n === e)), n.append(m("i", { class: `swatch-${e}` }), e, m("b", {}, c(t))), n;
	}
	#i(e) {
		this.#n = this.#n === e ? null : e, this.#t(this.#n);
		for (let e of this.#e.querySelectorAll("button")) e.setAttribute("aria-pressed", String(e.dataset.class === this.#n));
	}
}, y = {
	weight: "a weight: every step reads it, and the update writes it",
	frozen: "a frozen weight: steps read it, and none writes it",
	optimizer: "state of the optimizer: each update reads and writes it",
	gradient: "a sum over micro-batches: each adds to it, and the update reads it",
	activation: "kept from one program to the next",
	workspace: "scratch that every step uses again",
	input: "the host writes it before each step"
};
function b(e, t) {
	let n = e[t];
	return n === void 0 ? `step ${t}` : `step ${t} · ${n.op} (${n.phase})`;
}
function x(e, t, n) {
	let r = e.tensors[t], i = [
		["Type", r.type],
		["Class", r.class],
		["Size", `${c(r.bytes)} · ${u(r.bytes)} B`]
	], a = r.read_by.find((e) => e >= n) ?? null;
	if (r.kept && i.push(["Kept", `For the whole run: ${y[r.class]}.`]), r.kept || i.push(["Made by", b(e.ops, r.birth)]), a !== null) i.push(["Read next by", b(e.ops, a)]);
	else {
		let t = r.read_by.at(-1);
		t !== void 0 && i.push(["Last read by", b(e.ops, t)]);
	}
	if (!r.kept) {
		let t = r.birth, n = r.death - t + 1;
		i.push(["Alive", `Steps ${t} to ${r.death}, ${n} of ${e.ops.length}`]);
	}
	return i.push(["Recomputing", S(e, r)]), {
		title: r.name,
		rows: i
	};
}
function S({ name: e, ops: t }, { kept: n, again_s: r }) {
	if (r === null) return n ? "Not possible: it is state." : "Not possible at its next use.";
	let i = t.reduce((e, { seconds: t }) => e + t, 0), a = i > 0 ? `, ${p(r / i)} of program “${e}”` : "";
	return `Would take ${f(r)}${a}.`;
}
// ../page/src/arena/detail.ts
var C = "Point at the map, or focus it and use the arrow keys, to see what a tensor is and why it’s alive.";
function w(e, t, n) {
	if (t === null || n === null) {
		e.replaceChildren(m("p", { class: "hint" }, C));
		return;
	}
	let r = t.program.ops[n.step], i = c(r?.live ?? 0), a = [m("p", { class: "hint" }, `Step ${n.step} · ${r?.op ?? ""} · ${i} live`)];
	if (n.tensor === null) a.push(m("p", { class: "hint" }, "Nothing is here at this step."));
	else {
		let { title: e, rows: r } = x(t.program, n.tensor, n.step), i = m("dl", {});
		for (let [e, t] of r) i.append(m("dt", {}, e), m("dd", {}, t));
		a.push(m("h3", {}, e), i);
	}
	e.replaceChildren(...a);
}
// ../page/src/arena/geometry.ts
function T(e, t) {
	return e.left + t / Math.max(1, e.steps) * e.width;
}
function E(e, t) {
	return e.top + e.height * (1 - t / Math.max(1, e.bytes));
}
function D(e, t) {
	return [e.birth, Math.min(t, e.death + 1)];
}
function O(e, t) {
	let [n, r] = D(t, e.steps), i = T(e, n), a = E(e, t.offset + t.bytes);
	return {
		x: i,
		y: a,
		width: T(e, r) - i,
		height: E(e, t.offset) - a
	};
}
function k(e, t) {
	let n = Math.round(e.x * t), r = Math.round(e.y * t), i = Math.round((e.x + e.width) * t), a = Math.round((e.y + e.height) * t);
	return {
		x: n,
		y: r,
		width: Math.max(1, i - n),
		height: Math.max(1, a - r)
	};
}
function ee(e, t, n) {
	let r = (t - e.left) / e.width, i = 1 - (n - e.top) / e.height;
	return r < 0 || r >= 1 || i < 0 || i >= 1 ? null : {
		step: Math.floor(r * e.steps),
		offset: Math.floor(i * e.bytes)
	};
}
function A(e, t) {
	return e.birth <= t && t <= e.death;
}
function j(e, t, n) {
	let r = null, i = -Infinity;
	return e.forEach((e, a) => {
		let o = e.kept ? -1 : e.birth;
		e.offset <= n && n < e.offset + e.bytes && A(e, t) && o > i && (r = a, i = o);
	}), r;
}
function te(e, t) {
	return e.map((e, t) => t).filter((n) => A(e[n], t)).sort((t, n) => e[t].offset - e[n].offset);
}
function ne(e) {
	let t = 0;
	return e.forEach(({ live: n }, r) => {
		n > (e[t]?.live ?? 0) && (t = r);
	}), t;
}
function re(e) {
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
function ie(e) {
	let t = [];
	for (let { phase: n, from: r, to: i } of re(e)) {
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
var ae = 1024, M = [
	1,
	2,
	5,
	10,
	20,
	50,
	100,
	200,
	500
], N = [
	.1,
	.2,
	.25,
	.5
];
function P(e, t) {
	if (e <= 0) return [0];
	let n = ae ** Math.floor(Math.log(e) / Math.log(ae)), r = ((n === 1 ? M : [...N, ...M]).find((r) => e / (r * n) <= t) ?? ae) * n;
	return Array.from({ length: Math.floor(e / r) + 1 }, (e, t) => t * r);
}
// ../page/src/arena/paint.ts
var F = {
	left: 64,
	right: 12,
	top: 20,
	bottom: 34
}, I = 5, L = 4, oe = 4, se = .13, ce = 15;
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
		left: F.left,
		top: F.top,
		width: Math.max(1, e - F.left - F.right),
		height: Math.max(1, t - F.top - F.bottom),
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
	for (let i of P(t.bytes, I)) {
		let a = xe(E(t, i), r);
		e.strokeStyle = n.rule, e.lineWidth = 1 / r, R(e, t.left, a, t.left + t.width, a), e.fillStyle = n.muted, e.fillText(l(i), t.left - 8, a);
	}
}
function pe(e, t, n, r) {
	e.setTransform(1, 0, 0, 1, 0, 0);
	for (let i of t.planned.program.tensors) {
		let a = k(O(t.frame, i), r);
		e.globalAlpha = t.highlight !== null && i.class !== t.highlight ? se : 1, e.fillStyle = n.classes[i.class], e.fillRect(a.x, a.y, me(a.width), me(a.height));
	}
	e.globalAlpha = 1;
}
function me(e) {
	return e >= oe ? e - 1 : e;
}
function he(e, { planned: t, frame: n }, r) {
	let i = n.top + n.height + 6, a = {
		forward: .25,
		backward: .5,
		recompute: .8,
		update: 1
	};
	e.textAlign = "left", e.textBaseline = "top";
	for (let { phase: o, from: s, to: c } of re(t.program.ops)) {
		let t = T(n, s);
		e.globalAlpha = a[o], e.fillStyle = r.muted, e.fillRect(t, i, Math.max(T(n, c) - t - 1, .5), L);
	}
	e.globalAlpha = 1;
	for (let { label: r, from: a, to: o } of ie(t.program.ops)) {
		let t = T(n, a);
		T(n, o) - t >= e.measureText(r).width + 8 && e.fillText(r, t, i + L + 6);
	}
}
function ge(e, t, n, r) {
	let { frame: i, planned: a } = t, o = t.budget !== null && t.budget <= i.bytes ? t.budget : null, s = i.left + i.width, l = (e) => xe(E(i, e), r), [u, d] = [l(a.peak_bytes), l(a.lower_bound_bytes)], f = a.peak_bytes - a.lower_bound_bytes;
	e.lineWidth = 1, e.strokeStyle = n.ink, R(e, i.left, u, s, u), f > 0 && (e.setLineDash([2, 3]), R(e, i.left, d, s, d), e.setLineDash([])), o !== null && (e.strokeStyle = n.accent, e.lineWidth = 1.5, R(e, i.left, l(o), s, l(o)));
	let p = Math.abs(u - d) < ce, m = `peak ${c(a.peak_bytes)}`;
	f === 0 ? _e(e, `${m} = lower bound`, s, u, n.ink, n) : p ? _e(e, `${m}, lower bound ${c(f)} less`, s, u, n.ink, n) : (_e(e, m, s, u, n.ink, n), _e(e, `lower bound ${c(a.lower_bound_bytes)}`, s, d, n.ink, n)), o !== null && (Math.abs(l(o) - u) >= ce || i.width > 420) && _e(e, `budget ${c(o)}`, i.left, l(o), n.accent, n);
}
function _e(e, t, n, r, i, a) {
	let o = i === a.accent, s = e.measureText(t).width + 8, c = o ? n : n - s;
	e.fillStyle = a.surface, e.globalAlpha = .86, e.fillRect(c, r - ce - 1, s, ce), e.globalAlpha = 1, e.fillStyle = i, e.textAlign = "left", e.textBaseline = "middle", e.fillText(t, c + 4, r - ce / 2 - .5);
}
function ve(e, t, n, r, i) {
	if (e.setTransform(1, 0, 0, 1, 0, 0), e.clearRect(0, 0, e.canvas.width, e.canvas.height), i === null) return;
	let { frame: a, planned: o } = t;
	e.setTransform(r, 0, 0, r, 0, 0);
	let s = xe(T(a, i.step + .5), r);
	e.strokeStyle = n.ink, e.lineWidth = 1 / r, R(e, s, a.top, s, a.top + a.height + 6 + L);
	let c = i.tensor === null ? void 0 : o.program.tensors[i.tensor];
	c !== void 0 && ye(e, c, a, n, i.step);
}
function ye(e, t, n, r, i) {
	let a = O(n, t);
	be(e, a, r);
	let o = t.read_by.find((e) => e >= i);
	e.fillStyle = r.ink;
	for (let r of t.read_by) {
		let t = T(n, r + .5), i = r === o ? 5 : 2.5;
		e.beginPath(), e.moveTo(t - i, a.y + a.height + i * 1.6), e.lineTo(t + i, a.y + a.height + i * 1.6), e.lineTo(t, a.y + a.height), e.fill();
	}
}
function be(e, t, n) {
	e.strokeStyle = n.surface, e.lineWidth = 4, e.strokeRect(t.x, t.y, t.width, t.height), e.strokeStyle = n.ink, e.lineWidth = 2, e.strokeRect(t.x, t.y, t.width, t.height);
}
function xe(e, t) {
	return (Math.round(e * t) + .5) / t;
}
function R(e, t, n, r, i) {
	e.beginPath(), e.moveTo(t, n), e.lineTo(r, i), e.stroke();
}
// ../page/src/arena/map.ts
var z = "Left and right arrow keys change the step, up and down the tensor.", Se = 1.07, Ce = class {
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
		this.#e = e, this.#r = t, e.classList.add("arena"), e.tabIndex = 0, e.role = "application", e.ariaRoleDescription = "map of the arena", e.ariaLabel = `${n}: time to the right, offsets upwards. ${z}`, e.setAttribute("aria-describedby", t.id), w(t, null, null), this.#t = document.createElement("canvas"), this.#n = document.createElement("canvas");
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
		this.#a = e, this.#o = t, this.#s = Math.max(n, e.peak_bytes), this.#l = null, w(this.#r, e, null), this.#f();
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
			frame: ue(t, n, e.program.ops.length, this.#s * Se),
			budget: this.#o,
			highlight: this.#c
		};
	}
	#h(e) {
		(e?.step !== this.#l?.step || e?.tensor !== this.#l?.tensor) && (this.#l = e, this.#p(), w(this.#r, this.#a, e));
	}
	#g(e) {
		let t = this.#m();
		if (t === null) return;
		let n = ee(t.frame, e.offsetX, e.offsetY);
		if (n === null) {
			this.#h(null);
			return;
		}
		let { step: r, offset: i } = n;
		this.#h({
			step: r,
			tensor: j(t.planned.program.tensors, r, i)
		});
	}
	#_() {
		let e = this.#a;
		if (e === null) return;
		let t = ne(e.program.ops), n = te(e.program.tensors, t), r = n.filter((t) => e.program.tensors[t]?.kept === !1), i = (t) => t.reduce((t, n) => {
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
			step: ne(t.program.ops),
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
			let e = te(t.program.tensors, r.step), n = r.tensor === null ? 0 : e.indexOf(r.tensor) + o, i = e[Math.min(e.length - 1, Math.max(0, n))] ?? null;
			this.#h({
				step: r.step,
				tensor: i
			});
		} else return;
		e.preventDefault();
	}
	#y(e, t, n) {
		if (n === null) return null;
		let r = e.program.tensors[n]?.offset ?? 0, i = te(e.program.tensors, t);
		return i.includes(n) ? n : j(e.program.tensors, t, r) ?? i.at(-1) ?? null;
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
function De(e, n) {
	let r = (e, t) => e.by_class[t] ?? 0, i = t.filter((t) => r(e, t) > 0 || r(n, t) > 0), a = we.map(([t, r]) => {
		let i = ({ choices: e }) => r(e) ?? "–";
		return {
			name: t,
			first: i(e),
			second: i(n)
		};
	});
	return {
		peak: Oe(e.peak_bytes, n.peak_bytes),
		step: Oe(e.step_s, n.step_s),
		classes: i.map((t) => ({
			name: t,
			...Oe(r(e, t), r(n, t))
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
	return Me(Ne(e, c), t);
}
function Ae({ change: e, share: t }) {
	return Me(Ne(e, f), t);
}
var je = .001;
function Me(e, t) {
	return t === null || Math.abs(t) < je ? e : `${e} (${Ne(t, p)})`;
}
function Ne(e, t) {
	return e === 0 ? "no change" : (e > 0 ? "+" : "−") + t(Math.abs(e));
}
function Pe({ peak: e, step: t }) {
	let n = e.change === 0 ? "as large" : `${c(Math.abs(e.change))} ${e.change < 0 ? "smaller" : "larger"}`, r = Math.abs(t.share ?? 0);
	return `The second plan is ${n} and ${t.change === 0 ? "as fast" : `${p(r)} ${t.change < 0 ? "faster" : "slower"}`}.`;
}
// ../page/src/compare/table.ts
function Fe(e, t, n) {
	let { peak: r, step: i, classes: a, choices: o } = De(e, t), s = [
		Ie(["Peak"], c(r.first), c(r.second), ke(r)),
		...a.map((e) => Ie([m("i", { class: `swatch-${e.name}` }), e.name], c(e.first), c(e.second), ke(e))),
		Ie(["Predicted step"], f(i.first), f(i.second), Ae(i)),
		...o.map((e) => {
			let t = Ie([e.name], e.first, e.second, "");
			return t.className = "choice", t;
		})
	], l = [
		"At the peak",
		...n,
		"Change"
	].map((e) => m("th", { scope: "col" }, e));
	return m("table", {}, m("caption", { class: "unseen" }, "What differs between the two plans"), m("thead", {}, m("tr", {}, ...l)), m("tbody", {}, ...s));
}
function Ie(e, ...t) {
	let n = t.map((e) => m("td", {}, e));
	return m("tr", {}, m("th", { scope: "row" }, ...e), ...n);
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
	#e = m("div", {
		class: "detail",
		id: "detail",
		"aria-live": "polite"
	});
	#t = [];
	constructor(e, t) {
		let n = e.get("names"), r = [He(e.get("first")), He(e.get("second"))], i = Math.max(...r.map((e) => e.peak_bytes));
		t.append(m("div", { class: "head" }, m("h2", {}, "Two plans of a training step")), m("p", { class: "why" }, Pe(De(...r))), m("div", { class: "pair" }, ...r.map((e, t) => this.#n(e, n[t] ?? "", i))), m("div", { class: "arena-row" }, m("div", { class: "difference" }, Fe(...r, n)), this.#e));
	}
	restyle() {
		for (let e of this.#t) e.restyle();
	}
	dispose() {
		for (let e of this.#t) e.dispose();
	}
	#n(e, t, n) {
		let r = m("div"), i = m("div", {
			class: "legend",
			role: "group",
			"aria-label": `Bytes at the peak of “${t}”`
		}), a = new Ce(r, this.#e, `Tensors of the plan “${t}”`);
		new v(i, (e) => a.highlight(e)).show(e), a.show(e, e.budget_bytes, n), this.#t.push(a);
		let o = `${c(e.peak_bytes)}, ${f(e.step_s)} a step`, s = m("div", { class: "head" }, m("h3", {}, t), m("p", { class: "unit" }, o));
		return m("section", { "aria-label": t }, s, r, i);
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
		let { name: e, ops: t, tensors: n } = this.#n.program, r = ne(t), i = te(n, r).map((e) => n[e]).sort((e, t) => t.bytes - e.bytes), a = (e) => e === void 0 ? "–" : `${e} ${t[e]?.op ?? ""}`, o = i.map((e) => m("tr", {}, m("td", {}, e.name), m("td", {}, e.class), m("td", {}, e.type), m("td", {}, u(e.bytes)), m("td", {}, u(e.offset)), m("td", {}, e.kept ? "kept" : a(e.birth)), m("td", {}, e.kept ? "kept" : a(e.read_by.at(-1))))), s = `step ${r} (${t[r]?.op ?? ""}) of program “${e}”`, c = `${i.length} tensors alive at ${s}`, l = Ke.map((e) => m("th", { scope: "col" }, e));
		this.#t.replaceChildren(m("table", {}, m("caption", {}, c), m("thead", {}, m("tr", {}, ...l)), m("tbody", {}, ...o)));
	}
};
// src/elements.ts
function Je(e, t, n = "") {
	let r = m("dd", { "data-figure": e }, t);
	return n !== "" && r.append(m("small", {}, n)), m("div", {}, m("dt", {}, e), r);
}
// src/tables.ts
function Ye(e) {
	let t = {
		class: "scroll",
		tabindex: 0,
		role: "region",
		"aria-label": e
	};
	return m("details", { class: "peak-table" }, m("summary", {}, e), m("div", t));
}
function Xe(e, t) {
	let n = e.map((e) => m("th", { scope: "col" }, e)), r = t.map(([e = "", ...t]) => m("tr", {}, m("th", { scope: "row" }, e), ...t.map((e) => m("td", {}, e))));
	return m("table", { class: "numbers" }, m("thead", {}, m("tr", {}, ...n)), m("tbody", {}, ...r));
}
function Ze({ by_class: e, peak_bytes: n }) {
	let r = (e, t) => [
		e,
		u(t),
		c(t),
		p(t / n)
	], i = t.filter((t) => (e[t] ?? 0) > 0).map((t) => r(m("span", {}, m("i", { class: `swatch-${t}` }), t), e[t]));
	return i.push(r(m("span", {}, "peak"), n)), Xe([
		"Class",
		"Bytes",
		"",
		"Of the peak"
	], i);
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
		].map(c), n = [
			e.forward_s,
			e.backward_s,
			e.recompute_s,
			e.update_s
		];
		return [
			$e(e),
			...t,
			...n.map((e) => e > 0 ? f(e) : "–")
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
	#t = m("input", {
		type: "range",
		id: "budget",
		min: 0,
		max: et,
		step: 1
	});
	#n = m("output", { for: "budget" });
	#r = m("p", { class: "unit" });
	#i = m("p", { class: "why" });
	#a = m("div", {
		class: "refusal",
		role: "alert",
		hidden: !0
	});
	#o = m("dl", { class: "figures" });
	#s = m("div", {
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
		let n = m("div"), r = m("div", {
			class: "legend",
			role: "group",
			"aria-label": "Bytes at the peak, by class"
		});
		t.append(m("div", { class: "head" }, m("h2", {}, "Memory of a training step"), this.#r), m("div", { class: "budget" }, m("label", { for: "budget" }, "Budget"), this.#t, this.#n), this.#a, this.#o, this.#i, m("div", { class: "arena-row" }, m("div", {}, n, r), this.#s), m("div", { class: "tables" }, this.#c, this.#l, this.#u)), this.#d = new Ce(n, this.#s), this.#f = new v(r, (e) => this.#d.highlight(e)), this.#p = new qe(this.#u), this.#t.addEventListener("input", () => this.#y()), e.on("change:plan", this.#m), e.on("change:error", this.#h), this.#v(), this.#S();
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
		g(this.#n, c(e)), this.#t.setAttribute("aria-valuetext", c(e));
	}
	#x(e) {
		clearTimeout(this.#_), this.#a.hidden = e === "", this.#a.replaceChildren(m("p", {}, e));
	}
	#S() {
		let e = He(this.#e.get("plan"));
		this.#g = e, this.#x(this.#e.get("error"));
		let t = f(e.plan_ms / 1e3), { ops: n, tensors: r } = e.program, i = `${d(e.parameters)} parameters · ${n.length} ops · ${r.length} tensors`;
		g(this.#r, `${i} · planned in ${t}`);
		let a = [e.why === "" ? "" : `The peak is ${e.why}.`, at(e)].join(" ");
		this.#i.replaceChildren(...h(a)), this.#d.show(e, e.budget_bytes, Math.max(this.#e.get("range")[1], e.peak_bytes)), this.#f.show(e), this.#p.show(e), this.#c.querySelector(".scroll")?.replaceChildren(Ze(e)), this.#l.querySelector(".scroll")?.replaceChildren(Qe(e)), this.#o.replaceChildren(...rt(e));
	}
};
function rt(e) {
	let { choices: t } = e, { ops: n } = e.program, r = n.filter(({ phase: e }) => e === "recompute").length;
	return [
		Je("Predicted peak", c(e.peak_bytes), `${u(e.peak_bytes)} B`),
		Je("Lower bound", c(e.lower_bound_bytes), `${u(e.lower_bound_bytes)} B`),
		Je("Predicted step", f(e.step_s)),
		Je("Micro-batch", `${t.micro_batch} × ${t.accumulation}`, t.accumulation > 1 ? `the map shows one of ${t.accumulation} passes` : "in one pass"),
		Je("Recomputed", it(t.checkpoint) ? `${r} of ${n.length} ops` : t.checkpoint, t.loss_chunk === 0 ? "loss in one piece" : `loss in chunks of ${t.loss_chunk}`)
	];
}
var it = (e) => e.includes("×");
function at({ choices: { checkpoint: e } }) {
	return it(e) ? `The backward pass computes again: ${e}.` : "";
}
// ../page/node_modules/uplot/dist/uPlot.esm.js
var ot = !0, st = "uplot", ct = "u-hz", lt = "u-vt", ut = "u-title", dt = "u-wrap", ft = "u-under", pt = "u-over", mt = "u-axis", ht = "u-off", gt = "u-select", _t = "u-cursor-x", vt = "u-cursor-y", yt = "u-cursor-pt", bt = "u-legend", xt = "u-live", St = "u-inline", Ct = "u-series", wt = "u-marker", Tt = "u-label", Et = "u-value", Dt = "width", Ot = "height", kt = "top", At = "bottom", jt = "left", Mt = "right", Nt = "#000", Pt = "#0000", Ft = "mousemove", It = "mousedown", Lt = "mouseup", Rt = "mouseenter", zt = "mouseleave", Bt = "dblclick", Vt = "resize", Ht = "scroll", Ut = "change", Wt = "dppxchange", Gt = "--", Kt = typeof window < "u", qt = Kt ? document : null, Jt = Kt ? window : null, Yt = Kt ? navigator : null, B, Xt;
function Zt() {
	let e = devicePixelRatio;
	B != e && (B = e, Xt && fn(Ut, Xt, Zt), Xt = matchMedia(`(min-resolution: ${B - .001}dppx) and (max-resolution: ${B + .001}dppx)`), dn(Ut, Xt, Zt), Jt.dispatchEvent(new CustomEvent(Wt)));
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
function V(e, t, n) {
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
	return [s ?? U, c ?? -U];
}
function bn(e, t, n, r) {
	let i = Bn(e), a = Bn(t);
	e == t && (i == -1 ? (e *= n, t /= n) : (e /= n, t *= n));
	let o = n == 10 ? Vn : Hn, s = i == 1 ? Pn : In, c = a == 1 ? In : Pn, l = s(o(Nn(e))), u = c(o(Nn(t))), d = zn(n, l), f = zn(n, u);
	return n == 10 && (l < 0 && (d = G(d, -l)), u < 0 && (f = G(f, -u))), r || n == 2 ? (e = d * i, t = f * a) : (e = ir(e, d), t = rr(t, f)), [e, t];
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
function H(e, t) {
	return e ?? t;
}
function Dn(e, t, n) {
	for (t = H(t, 0), n = H(n, e.length - 1); t <= n;) {
		if (e[t] != null) return !0;
		t++;
	}
	return !1;
}
function On(e, t, n) {
	let r = n.min, i = n.max, a = H(r.pad, 0), o = H(i.pad, 0), s = H(r.hard, -U), c = H(i.hard, U), l = H(r.soft, U), u = H(i.soft, -U), d = H(r.mode, 0), f = H(i.mode, 0), p = t - e, m = Vn(p), h = Rn(Nn(e), Nn(t)), g = Nn(Vn(h) - m);
	(p < 1e-24 || g > 10) && (p = 0, (e == 0 || t == 0) && (p = 1e-24, d == 2 && l != U && (a = 0), f == 2 && u != -U && (o = 0)));
	let _ = p || h || 1e3, v = zn(10, Pn(Vn(_))), y = G(ir(e - _ * (p == 0 ? e == 0 ? .1 : 1 : a), v / 10), 24), b = e >= l && (d == 1 || d == 3 && y <= l || d == 2 && y >= l) ? l : U, x = Rn(s, y < b && e >= b ? b : Ln(b, y)), S = G(rr(t + _ * (p == 0 ? t == 0 ? .1 : 1 : o), v / 10), 24), C = t <= u && (f == 1 || f == 3 && S >= u || f == 2 && S <= u) ? u : -U, w = Ln(c, S > C && t <= C ? C : Rn(C, S));
	return x == w && x == 0 && (w = 100), [x, w];
}
var kn = new Intl.NumberFormat(Kt ? Yt.language : "en-US"), An = (e) => kn.format(e), jn = Math, Mn = jn.PI, Nn = jn.abs, Pn = jn.floor, Fn = jn.round, In = jn.ceil, Ln = jn.min, Rn = jn.max, zn = jn.pow, Bn = jn.sign, Vn = jn.log10, Hn = jn.log2, Un = (e, t = 1) => jn.sinh(e) * t, Wn = (e, t = 1) => jn.asinh(e / t), U = Infinity;
function Gn(e) {
	return (Vn((e ^ e >> 31) - (e >> 31)) | 0) + 1;
}
function Kn(e, t, n) {
	return Ln(Rn(e, t), n);
}
function qn(e) {
	return typeof e == "function";
}
function W(e) {
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
	return G(e, r);
};
function nr(e, t) {
	return tr(G(tr(e / t)) * t);
}
function rr(e, t) {
	return tr(In(tr(e / t)) * t);
}
function ir(e, t) {
	return tr(Pn(tr(e / t)) * t);
}
function G(e, t = 0) {
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
		let t = Nn(o), n = G(zn(e, o), t);
		for (let s = 0; s < r.length; s++) {
			let c = e == 10 ? +`${r[s]}e${o}` : r[s] * n, l = (o >= 0 ? 0 : t) + (o >= a[s] ? 0 : a[s]), u = e == 10 ? c : G(c, l);
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
function K(e) {
	let t = arguments;
	for (let n = 1; n < t.length; n++) {
		let r = t[n];
		for (let t in r) t != vr && (hr(e[t]) ? K(e[t], yr(r[t])) : e[t] = yr(r[t]));
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
function q(e, t) {
	let n;
	return t == "UTC" || t == "Etc/UTC" ? n = /* @__PURE__ */ new Date(+e + e.getTimezoneOffset() * 6e4) : t == Rr ? n = e : (n = new Date(e.toLocaleString("en-US", { timeZone: t })), n.setMilliseconds(e.getMilliseconds())), n;
}
var J = (e) => e % 1 == 0, zr = [
	1,
	2,
	2.5,
	5
], Br = sr(10, -32, 0, zr), Y = sr(10, 0, 32, zr), Vr = Y.filter(J), Hr = Br.concat(Y), X = "\n", Z = "{YYYY}", Ur = X + Z, Wr = "{M}/{D}", Gr = X + Wr, Kr = Gr + "/{YY}", qr = "{aa}", Jr = "{h}:{mm}" + qr, Yr = X + Jr, Xr = ":{ss}", Q = null;
function Zr(e) {
	let t = e * 1e3, n = t * 60, r = n * 60, i = r * 24, a = i * 30, o = i * 365, s = (e == 1 ? sr(10, 0, 3, zr).filter(J) : sr(10, -3, 0, zr)).concat([
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
			Z,
			Q,
			Q,
			Q,
			Q,
			Q,
			Q,
			1
		],
		[
			i * 28,
			"{MMM}",
			Ur,
			Q,
			Q,
			Q,
			Q,
			Q,
			1
		],
		[
			i,
			Wr,
			Ur,
			Q,
			Q,
			Q,
			Q,
			Q,
			1
		],
		[
			r,
			"{h}" + qr,
			Kr,
			Q,
			Gr,
			Q,
			Q,
			Q,
			1
		],
		[
			n,
			Jr,
			Kr,
			Q,
			Gr,
			Q,
			Q,
			Q,
			1
		],
		[
			t,
			Xr,
			Kr + " " + Jr,
			Q,
			Gr + " " + Jr,
			Q,
			Yr,
			Q,
			1
		],
		[
			e,
			Xr + ".{fff}",
			Kr + " " + Jr,
			Q,
			Gr + " " + Jr,
			Q,
			Yr,
			Q,
			1
		]
	];
	function l(t) {
		return (s, c, l, u, d, f) => {
			let p = [], m = d >= o, h = d >= a && d < o, g = t(l), _ = G(g * e, 3), v = si(g.getFullYear(), m ? 0 : g.getMonth(), h || m ? 1 : g.getDate()), y = G(v * e, 3);
			if (h || m) {
				let n = h ? d / a : 0, r = m ? d / o : 0, i = _ == y ? _ : G(si(v.getFullYear() + r, v.getMonth() + n, 1) * e, 3), s = new Date(Fn(i / e)), c = s.getFullYear(), l = s.getMonth();
				for (let a = 0; i <= u; a++) {
					let o = si(c + r * a, l + n * a, 1), s = o - t(G(o * e, 3));
					i = G((+o + s) * e, 3), i <= u && p.push(i);
				}
			} else {
				let a = d >= i ? i : d, o = y + (Pn(l) - Pn(_)) + rr(_ - y, a);
				p.push(o);
				let m = t(o), h = m.getHours() + m.getMinutes() / n + m.getSeconds() / r, g = d / r, v = f / s.axes[c]._space;
				for (; o = G(o + d, e == 1 ? 0 : 3), !(o > u);) if (g > 1) {
					let e = Pn(G(h + g, 6)) % 24, n = t(o).getHours() - e;
					n > 1 && (n = -1), o -= n * r, h = (h + g) % 24;
					let i = p[p.length - 1];
					G((o - i) / d, 3) * v >= .7 && p.push(o);
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
	V(r, Dt, i), V(r, Ot, i);
	let a = i / -2;
	V(r, "marginLeft", a), V(r, "marginTop", a);
	let o = n.width(e, t, i);
	return o && V(r, "borderWidth", o), r;
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
}, wi = K({}, Ci, { filter: Xn }), Ti = K({}, wi, { size: 10 }), Ei = K({}, Ci, { show: !1 }), Di = "12px system-ui, -apple-system, \"Segoe UI\", Roboto, \"Helvetica Neue\", Arial, \"Noto Sans\", sans-serif, \"Apple Color Emoji\", \"Segoe UI Emoji\", \"Segoe UI Symbol\", \"Noto Color Emoji\"", Oi = "bold " + Di, ki = 1.5, Ai = {
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
	min: U,
	max: -Infinity,
	idxs: []
};
function Pi(e, t, n, r, i) {
	return t.map((e) => e == null ? "" : An(e));
}
function Fi(e, t, n, r, i, a, o) {
	let s = [], c = ar.get(i) || 0;
	n = o ? n : G(rr(n, i), c);
	for (let e = n; e <= r; e = G(e + i, c)) s.push(Object.is(e, -0) ? 0 : e);
	return s;
}
function Ii(e, t, n, r, i, a, o) {
	let s = [], c = e.scales[e.axes[t].scale].log;
	i = zn(c, Pn((c == 10 ? Vn : Hn)(n))), c == 10 && (i = Hr[pn(i, Hr)]);
	let l = n, u = i * c;
	c == 10 && (u = Hr[pn(u, Hr)]);
	do
		s.push(l), l += i, c == 10 && !ar.has(l) && (l = G(l, ar.get(i))), l >= u && (i = l, u = i * c, c == 10 && (u = Hr[pn(u, Hr)]));
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
	return G((3 + (e || 1) * 2) * t, 3);
}
function Ji(e, t) {
	let { scale: n, idxs: r } = e.series[0], i = e._data[0], a = e.valToPos(i[r[0]], n, !0), o = Nn(e.valToPos(i[r[1]], n, !0) - a) / (e.series[t].points.space * B);
	return r[1] - r[0] <= o;
}
var Yi = {
	scale: null,
	auto: !0,
	sorted: 0,
	min: U,
	max: -Infinity
}, Xi = (e, t, n, r, i) => i, Zi = {
	show: !0,
	auto: !0,
	sorted: 0,
	gaps: Xi,
	alpha: 1,
	facets: [K({}, Yi, { scale: "x" }), K({}, Yi, { scale: "y" })]
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
	min: U,
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
}, ta = K({}, ea, {
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
	return u.ori == 0 ? n(i, c, l, u, d, g, _, f, p, m, h, ma, ga, va, ba, Sa) : n(i, c, l, u, d, _, g, p, f, h, m, ha, _a, ya, xa, Ca);
}
function sa(e, t) {
	let n = 0, r = 0, i = H(e.bands, lr);
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
		let h = e.pxRound, g = s.dir * (s.ori == 0 ? 1 : -1), _ = s.ori == 0 ? ga : _a, v, y;
		g == 1 ? (v = n, y = r) : (v = r, y = n);
		let b = h(l(t[v], s, p, d)), x = h(u(o[v], c, m, f)), S = h(l(t[y], s, p, d)), C = h(u(a == 1 ? c.max : c.min, c, m, f)), w = new Path2D(i);
		return _(w, S, C), _(w, b, C), _(w, b, x), w;
	});
}
function ua(e, t, n, r, i, a) {
	let o = null;
	if (e.length > 0) {
		o = new Path2D();
		let s = t == 0 ? va : ya, c = n;
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
function fa(e, t, n, r, i, a, o) {
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
function pa(e) {
	return e == 0 ? Yn : e == 1 ? Fn : (t) => nr(t, e);
}
function $(e) {
	let t = e == 0 ? ma : ha, n = e == 0 ? (e, t, n, r, i, a) => {
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
var ma = (e, t, n) => {
	e.moveTo(t, n);
}, ha = (e, t, n) => {
	e.moveTo(n, t);
}, ga = (e, t, n) => {
	e.lineTo(t, n);
}, _a = (e, t, n) => {
	e.lineTo(n, t);
}, va = $(0), ya = $(1), ba = (e, t, n, r, i, a) => {
	e.arc(t, n, r, i, a);
}, xa = (e, t, n, r, i, a) => {
	e.arc(n, t, r, i, a);
}, Sa = (e, t, n, r, i, a, o) => {
	e.bezierCurveTo(t, n, r, i, a, o);
}, Ca = (e, t, n, r, i, a, o) => {
	e.bezierCurveTo(n, t, i, r, o, a);
};
function wa(e) {
	return (e, t, n, r, i) => oa(e, t, (t, a, o, s, c, l, u, d, f, p, m) => {
		let { pxRound: h, points: g } = t, _, v;
		s.ori == 0 ? (_ = ma, v = ba) : (_ = ha, v = xa);
		let y = G(g.width * B, 3), b = (g.size - g.width) / 2 * B, x = G(b * 2, 3), S = new Path2D(), C = new Path2D(), { left: w, top: T, width: E, height: D } = e.bbox;
		va(C, w - x, T - x, E + x * 2, D + x * 2);
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
function Ta(e) {
	return (t, n, r, i, a, o) => {
		r != i && (a != r && o != r && e(t, n, r), a != i && o != i && e(t, n, i), e(t, n, o));
	};
}
var Ea = Ta(ga), Da = Ta(_a);
function Oa(e) {
	let t = H(e?.alignGaps, 0);
	return (e, n, r, i) => oa(e, n, (a, o, s, c, l, u, d, f, p, m, h) => {
		[r, i] = _n(s, r, i);
		let g = a.pxRound, _ = (e) => g(u(e, c, m, f)), v = (e) => g(d(e, l, h, p)), y, b;
		c.ori == 0 ? (y = ga, b = Ea) : (y = _a, b = Da);
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
			w && l.push(...fa(o, s, r, i, x, _, t)), S.gaps = l = a.gaps(e, n, r, i, l), S.clip = ua(l, c.ori, f, p, m, h);
		}
		return E != 0 && (S.band = E == 2 ? [la(e, n, r, i, C, -1), la(e, n, r, i, C, 1)] : la(e, n, r, i, C, E)), S;
	});
}
function ka(e) {
	let t = H(e.align, 1), n = H(e.ascDesc, !1), r = H(e.alignGaps, 0), i = H(e.extend, !1);
	return (e, a, o, s) => oa(e, a, (c, l, u, d, f, p, m, h, g, _, v) => {
		[o, s] = _n(u, o, s);
		let y = c.pxRound, { left: b, width: x } = e.bbox, S = (e) => y(p(e, d, _, h)), C = (e) => y(m(e, f, v, g)), w = d.ori == 0 ? ga : _a, T = {
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
			i.push(...fa(l, u, o, s, D, S, r));
			let f = c.width * B / 2, p = n || t == 1 ? f : -f, m = n || t == -1 ? -f : f;
			i.forEach((e) => {
				e[0] += p, e[1] += m;
			}), T.gaps = i = c.gaps(e, a, o, s, i), T.clip = ua(i, d.ori, h, g, _, v);
		}
		return ne != 0 && (T.band = ne == 2 ? [la(e, a, o, s, E, -1), la(e, a, o, s, E, 1)] : la(e, a, o, s, E, ne)), T;
	});
}
function Aa(e, t, n, r, i, a, o = U) {
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
function ja(e) {
	e ||= cr;
	let t = H(e.size, [
		.6,
		U,
		1
	]), n = e.align || 0, r = e.gap || 0, i = e.radius;
	i = i == null ? [0, 0] : typeof i == "number" ? [i, 0] : i;
	let a = W(i), o = 1 - t[0], s = H(t[1], U), c = H(t[2], 1), l = H(e.disp, cr), u = H(e.each, (e) => {}), { fill: d, stroke: f } = l;
	return (e, t, i, p) => oa(e, t, (m, h, g, _, v, y, b, x, S, C, w) => {
		let T = m.pxRound, E = n, D = r * B, O = s * B, k = c * B, ee, A;
		_.ori == 0 ? [ee, A] = a(e, t) : [A, ee] = a(e, t);
		let j = _.dir * (_.ori == 0 ? 1 : -1), te = _.ori == 0 ? va : ya, ne = _.ori == 0 ? u : (e, t, n, r, i, a, o) => {
			u(e, t, n, i, r, o, a);
		}, re = H(e.bands, lr).find((e) => e.series[0] == t), ie = re == null ? 0 : re.dir, ae = m.fillTo(e, t, m.min, m.max, ie), M = T(b(ae, v, w, S)), N, P, F, I = C, L = T(m.width * B), oe = !1, se = null, ce = null, le = null, ue = null;
		d != null && (L == 0 || f != null) && (oe = !0, se = d.values(e, t, i, p), ce = /* @__PURE__ */ new Map(), new Set(se).forEach((e) => {
			e != null && ce.set(e, new Path2D());
		}), L > 0 && (le = f.values(e, t, i, p), ue = /* @__PURE__ */ new Map(), new Set(le).forEach((e) => {
			e != null && ue.set(e, new Path2D());
		})));
		let { x0: de, size: fe } = l;
		if (de != null && fe != null) {
			E = 1, h = de.values(e, t, i, p), de.unit == 2 && (h = h.map((t) => e.posToVal(x + t * C, _.key, !0)));
			let n = fe.values(e, t, i, p);
			P = fe.unit == 2 ? n[0] * C : y(n[0], _, C, x) - y(0, _, C, x), I = Aa(h, g, y, _, C, x, I), F = I - P + D;
		} else I = Aa(h, g, y, _, C, x, I), F = I * o + D, P = I - F;
		F < 1 && (F = 0), L >= P / 2 && (L = 0), F < 5 && (T = Yn);
		let pe = F > 0, me = I - F - (pe ? L : 0);
		P = T(Kn(me, k, O)), N = (E == 0 ? P / 2 : E == j ? 0 : P) - E * j * ((E == 0 ? D / 2 : 0) + (pe ? L / 2 : 0));
		let he = {
			stroke: null,
			fill: null,
			clip: null,
			band: null,
			gaps: null,
			flags: 0
		}, ge = oe ? null : new Path2D(), _e = null;
		if (re != null) _e = e.data[re.series[1]];
		else {
			let { y0: n, y1: r } = l;
			n != null && r != null && (g = r.values(e, t, i, p), _e = n.values(e, t, i, p));
		}
		let ve = ee * P, ye = A * P;
		for (let n = j == 1 ? i : p; n >= i && n <= p; n += j) {
			let r = g[n];
			if (r == null) continue;
			if (_e != null) {
				let e = _e[n] ?? 0;
				if (r - e == 0) continue;
				M = b(e, v, w, S);
			}
			let i = y(_.distr != 2 || l != null ? h[n] : n, _, C, x), a = b(H(r, ae), v, w, S), o = T(i - N), s = T(Rn(a, M)), c = T(Ln(a, M)), u = s - c;
			if (r != null) {
				let i = r < 0 ? ye : ve, a = r < 0 ? ve : ye;
				oe ? (L > 0 && le[n] != null && te(ue.get(le[n]), o, c + Pn(L / 2), P, Rn(0, u - L), i, a), se[n] != null && te(ce.get(se[n]), o, c + Pn(L / 2), P, Rn(0, u - L), i, a)) : te(ge, o, c + Pn(L / 2), P, Rn(0, u - L), i, a), ne(e, t, n, o - L / 2, c, P + L, u);
			}
		}
		return L > 0 ? he.stroke = oe ? ue : ge : oe || (he._fill = m.width == 0 ? m._fill : m._stroke ?? m._fill, he.width = 0), he.fill = oe ? ce : ge, he;
	});
}
function Ma(e, t) {
	let n = H(t?.alignGaps, 0);
	return (t, r, i, a) => oa(t, r, (o, s, c, l, u, d, f, p, m, h, g) => {
		[i, a] = _n(c, i, a);
		let _ = o.pxRound, v = (e) => _(d(e, l, h, p)), y = (e) => _(f(e, u, g, m)), b, x, S;
		l.ori == 0 ? (b = ma, S = ga, x = Sa) : (b = ha, S = _a, x = Ca);
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
			e.push(...fa(s, c, i, a, C, v, n)), O.gaps = e = o.gaps(t, r, i, a, e), O.clip = ua(e, l.ori, p, m, h, g);
		}
		return A != 0 && (O.band = A == 2 ? [la(t, r, i, a, k, -1), la(t, r, i, a, k, 1)] : la(t, r, i, a, k, A)), O;
	});
}
function Na(e) {
	return Ma(Pa, e);
}
function Pa(e, t, n, r, i, a) {
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
var Fa = /* @__PURE__ */ new Set();
function Ia() {
	for (let e of Fa) e.syncRect(!0);
}
Kt && (dn(Vt, Jt, Ia), dn(Ht, Jt, Ia, !0), dn(Wt, Jt, () => {
	Qa.pxRatio = B;
}));
var La = Oa(), Ra = wa();
function za(e, t, n, r) {
	return (r ? [e[0], e[1]].concat(e.slice(2)) : [e[0]].concat(e.slice(1))).map((e, r) => Va(e, r, t, n));
}
function Ba(e, t) {
	return e.map((e, n) => n == 0 ? {} : K({}, t, e));
}
function Va(e, t, n, r) {
	return K({}, t == 0 ? n : r, e);
}
function Ha(e, t, n) {
	return t == null ? ur : [t, n];
}
var Ua = Ha;
function Wa(e, t, n) {
	return t == null ? ur : En(t, n, Sn, !0);
}
function Ga(e, t, n, r) {
	return t == null ? ur : bn(t, n, e.scales[r].log, !1);
}
var Ka = Ga;
function qa(e, t, n, r) {
	return t == null ? ur : xn(t, n, e.scales[r].log, !1);
}
var Ja = qa;
function Ya(e, t, n, r, i) {
	let a = Rn(Gn(e), Gn(t)), o = t - e, s = pn(i / r * o, n);
	do {
		let e = n[s], t = r * e / o;
		if (t >= i && a + (e < 5 ? ar.get(e) : 0) <= 17) return [e, t];
	} while (++s < n.length);
	return [0, 0];
}
function Xa(e) {
	let t, n;
	return e = e.replace(/(\d+)px/, (e, r) => (t = Fn((n = +r) * B)) + "px"), [
		e,
		t,
		n
	];
}
function Za(e) {
	e.show && [e.font, e.labelFont].forEach((e) => {
		let t = G(e[2] * B, 1);
		e[0] = e[0].replace(/[0-9.]+px/, t + "px"), e[1] = t;
	});
}
function Qa(e, t, n) {
	let r = { mode: H(e.mode, 1) }, i = r.mode;
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
		e.target === m && (q != Pr || J != Fr) && Br.click(r, e);
	}, !0);
	let p = r.under = tn(ft, f);
	f.appendChild(u);
	let m = r.over = tn(pt, f);
	e = yr(e);
	let h = +H(e.pxAlign, 1), g = pa(h);
	(e.plugins || []).forEach((t) => {
		t.opts && (e = t.opts(r, e) || e);
	});
	let _ = e.ms || .001, v = r.series = i == 1 ? za(e.series || [], Ni, Qi, !1) : Ba(e.series || [null], Zi), y = r.axes = za(e.axes || [], Ai, Ki, !0), b = r.scales = {}, x = r.bands = e.bands || [];
	x.forEach((e) => {
		e.fill = W(e.fill || null), e.dir = H(e.dir, -1);
	});
	let S = i == 2 ? v[1].facets[0].scale : v[0].scale, C = {
		axes: fr,
		series: Pn
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
				let e = K({}, b[r.from], r, { key: t });
				e.valToPct = T(e), b[t] = e;
			} else {
				n = b[t] = K({}, t == S ? ea : ta, r), n.key = t;
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
				n.range = W(a || (e ? Ua : t == S ? n.distr == 3 ? Ka : n.distr == 4 ? Ja : Ha : n.distr == 3 ? Ga : n.distr == 4 ? qa : Wa)), n.auto = W(!o && n.auto), n.clamp = W(n.clamp || $i), n._min = n._max = null, n.valToPct = T(n);
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
	let j = e.tzDate || ((e) => new Date(Fn(e / _))), te = e.fmtDate || Lr, ne = _ == 1 ? ei(j) : ri(j), re = ai(j, ii(_ == 1 ? $r : ni, te)), ie = ui(j, ci(li, te)), ae = [], M = r.legend = K({}, pi, e.legend), N = r.cursor = K({}, Si, { drag: { y: i == 2 } }, e.cursor), P = M.show, F = N.show, I = M.markers;
	M.idxs = ae, I.width = W(I.width), I.dash = W(I.dash), I.stroke = W(I.stroke), I.fill = W(I.fill);
	let L, oe, se, ce = [], le = [], ue, de = !1, fe = {};
	if (M.live) {
		let e = v[1] ? v[1].values : null;
		de = e != null, ue = de ? e(r, 1, 0) : { _: 0 };
		for (let e in ue) fe[e] = Gt;
	}
	if (P) {
		if (L = en("table", bt, l), se = en("tbody", null, L), M.mount(r, L), de) {
			oe = en("thead", null, L, se);
			let e = en("tr", null, oe);
			for (var pe in en("th", null, e), ue) en("th", Tt, e).textContent = pe;
		} else Qt(L, St), M.live && Qt(L, xt);
	}
	let me = { show: !0 }, he = { show: !1 };
	function ge(e, t) {
		if (t == 0 && (de || !M.live || i == 2)) return ur;
		let n = [], a = en("tr", Ct, se, se.childNodes[t]);
		Qt(a, e.class), e.show || Qt(a, ht);
		let o = en("th", null, a);
		if (I.show) {
			let e = tn(wt, o);
			if (t > 0) {
				let n = I.width(r, t);
				n && (e.style.border = n + "px " + I.dash(r, t) + " " + I.stroke(r, t)), e.style.background = I.fill(r, t);
			}
		}
		let s = tn(Tt, o);
		for (var c in e.label instanceof HTMLElement ? s.appendChild(e.label) : s.textContent = e.label, t > 0 && (I.show || (s.style.color = e.width > 0 ? I.stroke(r, t) : I.fill(r, t)), ve("click", o, (t) => {
			if (N._lock) return;
			We(t);
			let n = v.indexOf(e);
			if ((t.ctrlKey || t.metaKey) != M.isolate) {
				let e = v.some((e, t) => t > 0 && t != n && e.show);
				v.forEach((t, r) => {
					r > 0 && qr(r, e ? r == n ? me : he : me, !0, $.setSeries);
				});
			} else qr(n, { show: !e.show }, !0, $.setSeries);
		}, !1), qe && ve(Rt, o, (t) => {
			N._lock || (We(t), qr(v.indexOf(e), fi, !0, $.setSeries));
		}, !1)), ue) {
			let e = en("td", Et, a);
			e.textContent = "--", n.push(e);
		}
		return [a, n];
	}
	let _e = /* @__PURE__ */ new Map();
	function ve(e, t, n, i = !0) {
		let a = _e.get(t) || {}, o = N.bind[e](r, t, n, i);
		o && (dn(e, t, a[e] = o), _e.set(t, a));
	}
	function ye(e, t, n) {
		let r = _e.get(t) || {};
		for (let n in r) (e == null || n == e) && (fn(n, t, r[n]), delete r[n]);
		e ?? _e.delete(t);
	}
	let be = 0, xe = 0, R = 0, z = 0, Se = 0, Ce = 0, we = Se, Te = Ce, Ee = R, De = z, Oe = 0, ke = 0, Ae = 0, je = 0;
	r.bbox = {};
	let Me = !1, Ne = !1, Pe = !1, Fe = !1, Ie = !1, Le = !1;
	function Re(e, t, n) {
		(n || e != r.width || t != r.height) && ze(e, t), _r(!1), Pe = !0, Ne = !0, Cr();
	}
	function ze(e, t) {
		r.width = be = R = e, r.height = xe = z = t, Se = Ce = 0, He(), Ue();
		let n = r.bbox;
		Oe = n.left = nr(Se * B, .5), ke = n.top = nr(Ce * B, .5), Ae = n.width = nr(R * B, .5), je = n.height = nr(z * B, .5);
	}
	function Be() {
		let e = !1, t = 0;
		for (; !e;) {
			t++;
			let n = ir(t), i = sr(t);
			e = t == 3 || n && i, e || (ze(r.width, r.height), Ne = !0);
		}
	}
	function Ve({ width: e, height: t }) {
		Re(e, t);
	}
	r.setSize = Ve;
	function He() {
		let e = !1, t = !1, n = !1, r = !1;
		y.forEach((i, a) => {
			if (i.show && i._show) {
				let { side: a, _size: o } = i, s = a % 2, c = o + (i.label == null ? 0 : i.labelSize);
				c > 0 && (s ? (R -= c, a == 3 ? (Se += c, r = !0) : n = !0) : (z -= c, a == 0 ? (Ce += c, e = !0) : t = !0));
			}
		}), nt[0] = e, nt[1] = n, nt[2] = t, nt[3] = r, R -= ot[1] + ot[3], Se += ot[3], z -= ot[2] + ot[0], Ce += ot[0];
	}
	function Ue() {
		let e = Se + R, t = Ce + z, n = Se, r = Ce;
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
		let r = e.prox = W(e.prox), i = e.bias ??= 0;
		N.dataIdx = (e, a, o, s) => {
			if (a == 0) return o;
			let c = o, l = r(e, a, o, s) ?? U, u = l >= 0 && l < U, d = D.ori == 0 ? R : z, f = N.left, p = t[0], m = t[a];
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
	let We = (e) => {
		N.event = e;
	};
	N.idxs = ae, N._lock = !1;
	let Ge = N.points;
	Ge.show = W(Ge.show), Ge.size = W(Ge.size), Ge.stroke = W(Ge.stroke), Ge.width = W(Ge.width), Ge.fill = W(Ge.fill);
	let Ke = r.focus = K({}, e.focus || { alpha: .3 }, N.focus), qe = Ke.prox >= 0, Je = qe && Ge.one, Ye = [], Xe = [], Ze = [];
	function Qe(e, t) {
		let n = Ge.show(r, t);
		if (n instanceof HTMLElement) return Qt(n, yt), Qt(n, e.class), rn(n, -10, -10, R, z), m.insertBefore(n, Ye[t]), n;
	}
	function $e(e, t) {
		if (i == 1 || t > 0) {
			let t = i == 1 && b[e.scale].time, n = e.value;
			e.value = t ? mr(n) ? ui(j, ci(n, te)) : n || ie : n || Gi, e.label = e.label || (t ? Mi : ji);
		}
		if (Je || t > 0) {
			e.width = e.width == null ? 1 : e.width, e.paths = e.paths || La || Zn, e.fillTo = W(e.fillTo || ca), e.pxAlign = +H(e.pxAlign, h), e.pxRound = pa(e.pxAlign), e.stroke = W(e.stroke || null), e.fill = W(e.fill || null), e._stroke = e._fill = e._paths = e._focus = null;
			let t = qi(Rn(1, e.width), 1), n = e.points = K({}, {
				size: t,
				width: Rn(1, t * .2),
				stroke: e.stroke,
				space: t * 2,
				paths: Ra,
				_stroke: null,
				_fill: null
			}, e.points);
			n.show = W(n.show), n.filter = W(n.filter), n.fill = W(n.fill), n.stroke = W(n.stroke), n.paths = W(n.paths), n.pxAlign = e.pxAlign;
		}
		if (P) {
			let n = ge(e, t);
			ce.splice(t, 0, n[0]), le.splice(t, 0, n[1]), M.values.push(null);
		}
		if (F) {
			ae.splice(t, 0, null);
			let n = null;
			Je ? t == 0 && (n = Qe(e, t)) : t > 0 && (n = Qe(e, t)), Ye.splice(t, 0, n), Xe.splice(t, 0, 0), Ze.splice(t, 0, 0);
		}
		da("addSeries", t);
	}
	function et(e, t) {
		t ??= v.length, e = i == 1 ? Va(e, t, Ni, Qi) : Va(e, t, {}, Zi), v.splice(t, 0, e), $e(v[t], t);
	}
	r.addSeries = et;
	function tt(e) {
		if (v.splice(e, 1), P) {
			M.values.splice(e, 1), le.splice(e, 1);
			let t = ce.splice(e, 1)[0];
			ye(null, t.firstChild), t.remove();
		}
		F && (ae.splice(e, 1), Ye.splice(e, 1)[0].remove(), Xe.splice(e, 1), Ze.splice(e, 1)), da("delSeries", e);
	}
	r.delSeries = tt;
	let nt = [
		!1,
		!1,
		!1,
		!1
	];
	function rt(e, t) {
		if (e._show = e.show, e.show) {
			let n = e.side % 2, i = b[e.scale];
			i ??= (e.scale = n ? v[1].scale : S, b[e.scale]);
			let a = i.time;
			e.size = W(e.size), e.space = W(e.space), e.rotate = W(e.rotate), dr(e.incrs) && e.incrs.forEach((e) => {
				!ar.has(e) && ar.set(e, or(e));
			}), e.incrs = W(e.incrs || (i.distr == 2 ? Vr : a ? _ == 1 ? Qr : ti : Hr)), e.splits = W(e.splits || (a && i.distr == 1 ? ne : i.distr == 3 ? Ii : i.distr == 4 ? Li : Fi)), e.stroke = W(e.stroke), e.grid.stroke = W(e.grid.stroke), e.ticks.stroke = W(e.ticks.stroke), e.border.stroke = W(e.border.stroke);
			let o = e.values;
			e.values = dr(o) && !dr(o[0]) ? W(o) : a ? dr(o) ? ai(j, ii(o, te)) : mr(o) ? oi(j, o) : o || re : o || Pi, e.filter = W(e.filter || (i.distr >= 3 && i.log == 10 ? Ui : i.distr == 3 && i.log == 2 ? Wi : Xn)), e.font = Xa(e.font), e.labelFont = Xa(e.labelFont), e._size = e.size(r, null, t, 0), e._space = e._rotate = e._incrs = e._found = e._splits = e._values = null, e._size > 0 && (nt[t] = !0, e._el = tn(mt, f));
		}
	}
	function it(e, t, n, r) {
		let [i, a, o, s] = n, c = t % 2, l = 0;
		return c == 0 && (s || a) && (l = t == 0 && !i || t == 2 && !o ? Fn(Ai.size / 3) : 0), c == 1 && (i || o) && (l = t == 1 && !a || t == 3 && !s ? Fn(Ki.size / 2) : 0), l;
	}
	let at = r.padding = (e.padding || [
		it,
		it,
		it,
		it
	]).map((e) => W(H(e, it))), ot = r._padding = at.map((e, t) => e(r, t, nt, 0)), Nt, Vt = null, Ht = null, Ut = i == 1 ? v[0].idxs : null, Kt = null, Yt = !1;
	function Xt(e, n) {
		if (t = e ?? [], r.data = r._data = t, i == 2) {
			Nt = 0;
			for (let e = 1; e < v.length; e++) Nt += t[e][0].length;
		} else {
			t.length == 0 && (r.data = r._data = t = [[]]), Kt = t[0], Nt = Kt.length;
			let e = t;
			if (O == 2) {
				e = t.slice();
				let n = e[0] = Array(Nt);
				for (let e = 0; e < Nt; e++) n[e] = e;
			}
			r._data = t = e;
		}
		if (_r(!0), da("setData"), O == 2 && (Pe = !0), n !== !1) {
			let e = D;
			e.auto(r, Yt) ? Zt() : Kr(S, e.min, e.max), Fe ||= N.left >= 0, Le = !0, Cr();
		}
	}
	r.setData = Xt;
	function Zt() {
		Yt = !0;
		let e, n;
		i == 1 && (Nt > 0 ? (Vt = Ut[0] = 0, Ht = Ut[1] = Nt - 1, e = t[0][Vt], n = t[0][Ht], O == 2 ? (e = Vt, n = Ht) : e == n && (O == 3 ? [e, n] = bn(e, e, D.log, !1) : O == 4 ? [e, n] = xn(e, e, D.log, !1) : D.time ? n = e + Fn(86400 / _) : [e, n] = En(e, n, Sn, !0))) : (Vt = Ut[0] = e = null, Ht = Ut[1] = n = null)), Kr(S, e, n);
	}
	let nn, an, sn, ln, un, mn, hn, gn, _n, vn;
	function wn(e, t, n, r, i, a) {
		e ??= Pt, n ??= lr, r ??= "butt", i ??= Pt, a ??= "round", e != nn && (d.strokeStyle = nn = e), i != an && (d.fillStyle = an = i), t != sn && (d.lineWidth = sn = t), a != un && (d.lineJoin = un = a), r != mn && (d.lineCap = mn = r), n != ln && d.setLineDash(ln = n);
	}
	function Tn(e, t, n, r) {
		t != an && (d.fillStyle = an = t), e != hn && (d.font = hn = e), n != gn && (d.textAlign = gn = n), r != _n && (d.textBaseline = _n = r);
	}
	function On(e, t, n, i, a = 0) {
		if (i.length > 0 && e.auto(r, Yt) && (t == null || t.min == null)) {
			let t = H(Vt, 0), r = H(Ht, i.length - 1), o = n.min == null ? yn(i, t, r, a, e.distr == 3) : [n.min, n.max];
			e.min = Ln(e.min, n.min = o[0]), e.max = Rn(e.max, n.max = o[1]);
		}
	}
	let kn = {
		min: null,
		max: null
	};
	function An() {
		for (let e in b) {
			let t = b[e];
			A[e] == null && (t.min == null || A[S] != null && t.auto(r, Yt)) && (A[e] = kn);
		}
		for (let e in b) {
			let t = b[e];
			A[e] == null && t.from != null && A[t.from] != null && (A[e] = kn);
		}
		A[S] != null && _r(!0);
		let e = {};
		for (let t in A) {
			let n = A[t];
			if (n != null) {
				let a = e[t] = yr(b[t], gr);
				if (n.min != null) K(a, n);
				else if (t != S || i == 2) {
					if (Nt == 0 && a.from == null) {
						let e = a.range(r, null, null, t);
						a.min = e[0], a.max = e[1];
					} else a.min = U, a.max = -Infinity;
				}
			}
		}
		if (Nt > 0) {
			v.forEach((n, a) => {
				if (i == 1) {
					let i = n.scale, o = A[i];
					if (o == null) return;
					let s = e[i];
					if (a == 0) {
						let e = s.range(r, s.min, s.max, i);
						s.min = e[0], s.max = e[1], Vt = pn(s.min, t[0]), Ht = pn(s.max, t[0]), Ht - Vt > 1 && (t[0][Vt] < s.min && Vt++, t[0][Ht] > s.max && Ht--), n.min = Kt[Vt], n.max = Kt[Ht];
					} else n.show && n.auto && On(s, o, n, t[a], n.sorted);
					n.idxs[0] = Vt, n.idxs[1] = Ht;
				} else if (a > 0 && n.show && n.auto) {
					let [r, i] = n.facets, o = r.scale, s = i.scale, [c, l] = t[a], u = e[o], d = e[s];
					u != null && On(u, A[o], r, c, r.sorted), d != null && On(d, A[s], i, l, i.sorted), n.min = i.min, n.max = i.max;
				}
			});
			for (let t in e) {
				let n = e[t], i = A[t];
				if (n.from == null && (i == null || i.min == null)) {
					let e = n.range(r, n.min == U ? null : n.min, n.max == -Infinity ? null : n.max, t);
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
			for (let e in n) Pe = !0, da("setScale", e);
			F && N.left >= 0 && (Fe = Le = !0);
		}
		for (let e in A) A[e] = null;
	}
	function jn(e) {
		let t = Kn(Vt - 1, 0, Nt - 1), n = Kn(Ht + 1, 0, Nt - 1);
		for (; e[t] == null && t > 0;) t--;
		for (; e[n] == null && n < Nt - 1;) n++;
		return [t, n];
	}
	function Pn() {
		if (Nt > 0) {
			let e = v.some((e) => e._focus) && vn != Ke.alpha;
			e && (d.globalAlpha = vn = Ke.alpha), v.forEach((e, n) => {
				if (n > 0 && e.show && (Bn(n, !1), Bn(n, !0), e._paths == null)) {
					let a = vn;
					vn != e.alpha && (d.globalAlpha = vn = e.alpha);
					let o = i == 2 ? [0, t[n][0].length - 1] : jn(t[n]);
					e._paths = e.paths(r, n, o[0], o[1]), vn != a && (d.globalAlpha = vn = a);
				}
			}), v.forEach((e, t) => {
				if (t > 0 && e.show) {
					let n = vn;
					vn != e.alpha && (d.globalAlpha = vn = e.alpha), e._paths != null && Hn(t, !1);
					{
						let n = e._paths == null ? null : e._paths.gaps, i = e.points.show(r, t, Vt, Ht, n), a = e.points.filter(r, t, i, n);
						(i || a) && (e.points._paths = e.points.paths(r, t, Vt, Ht, a), Hn(t, !0));
					}
					vn != n && (d.globalAlpha = vn = n), da("drawSeries", t);
				}
			}), e && (d.globalAlpha = vn = 1);
		}
	}
	function Bn(e, t) {
		let n = t ? v[e].points : v[e];
		n._stroke = n.stroke(r, e), n._fill = n.fill(r, e);
	}
	function Hn(e, t) {
		let n = t ? v[e].points : v[e], { stroke: r, fill: i, clip: a, flags: o, _stroke: s = n._stroke, _fill: c = n._fill, _width: l = n.width } = n._paths;
		l = G(l * B, 3);
		let u = null, f = l % 2 / 2;
		t && c == null && (c = l > 0 ? "#fff" : s);
		let p = n.pxAlign == 1 && f > 0;
		if (p && d.translate(f, f), !t) {
			let e = Oe - l / 2, t = ke - l / 2, n = Ae + l, r = je + l;
			u = new Path2D(), u.rect(e, t, n, r);
		}
		t ? Jn(s, l, n.dash, n.cap, c, r, i, o, a) : Gn(e, s, l, n.dash, n.cap, c, r, i, o, u, a), p && d.translate(-f, -f);
	}
	function Gn(e, n, i, a, o, s, c, l, u, d, f) {
		let p = !1;
		u != 0 && x.forEach((m, h) => {
			if (m.series[0] == e) {
				let e = v[m.series[1]], g = t[m.series[1]], _ = (e._paths || cr).band;
				dr(_) && (_ = m.dir == 1 ? _[0] : _[1]);
				let y, b = null;
				e.show && _ && Dn(g, Vt, Ht) ? (b = m.fill(r, h) || s, y = e._paths.clip) : _ = null, Jn(n, i, a, o, b, c, l, u, d, f, y, _), p = !0;
			}
		}), p || Jn(n, i, a, o, s, c, l, u, d, f);
	}
	function Jn(e, t, n, r, i, a, o, s, c, l, u, f) {
		wn(e, t, n, r, i), (c || l || f) && (d.save(), c && d.clip(c), l && d.clip(l)), f ? (s & 3) == 3 ? (d.clip(f), u && d.clip(u), er(i, o), Yn(e, a, t)) : s & aa ? (er(i, o), d.clip(f), Yn(e, a, t)) : s & ia && (d.save(), d.clip(f), u && d.clip(u), er(i, o), d.restore(), Yn(e, a, t)) : (er(i, o), Yn(e, a, t)), (c || l || f) && d.restore();
	}
	function Yn(e, t, n) {
		n > 0 && (t instanceof Map ? t.forEach((e, t) => {
			d.strokeStyle = nn = t, d.stroke(e);
		}) : t != null && e && d.stroke(t));
	}
	function er(e, t) {
		t instanceof Map ? t.forEach((e, t) => {
			d.fillStyle = an = t, d.fill(e);
		}) : t != null && e && d.fill(t);
	}
	function tr(e, t, n, i) {
		let a = y[e], o;
		if (i <= 0) o = [0, 0];
		else {
			let s = a._space = a.space(r, e, t, n, i);
			o = Ya(t, n, a._incrs = a.incrs(r, e, t, n, i, s), i, s);
		}
		return a._found = o;
	}
	function rr(e, t, n, r, i, a, o, s, c, l) {
		let u = o % 2 / 2;
		h == 1 && d.translate(u, u), wn(s, o, c, l, s), d.beginPath();
		let f, p, m, g, _ = i + (r == 0 || r == 3 ? -a : a);
		n == 0 ? (p = i, g = _) : (f = i, m = _);
		for (let r = 0; r < e.length; r++) t[r] != null && (n == 0 ? f = m = e[r] : p = g = e[r], d.moveTo(f, p), d.lineTo(m, g));
		d.stroke(), h == 1 && d.translate(-u, -u);
	}
	function ir(e) {
		let t = !0;
		return y.forEach((n, i) => {
			if (!n.show) return;
			let a = b[n.scale];
			if (a.min == null) {
				n._show && (t = !1, n._show = !1, _r(!1));
				return;
			}
			n._show || (t = !1, n._show = !0, _r(!1));
			let o = n.side, s = o % 2, { min: c, max: l } = a, [u, d] = tr(i, c, l, s == 0 ? R : z);
			if (d == 0) return;
			let f = a.distr == 2, p = n._splits = n.splits(r, i, c, l, u, d, f), m = a.distr == 2 ? p.map((e) => Kt[e]) : p, h = a.distr == 2 ? Kt[p[1]] - Kt[p[0]] : u, g = n._values = n.values(r, n.filter(r, m, i, d, h), i, d, h);
			n._rotate = o == 2 ? n.rotate(r, g, i, d) : 0;
			let _ = n._size;
			n._size = In(n.size(r, g, i, e)), _ != null && n._size != _ && (t = !1);
		}), t;
	}
	function sr(e) {
		let t = !0;
		return at.forEach((n, i) => {
			let a = n(r, i, nt, e);
			a != ot[i] && (t = !1), ot[i] = a;
		}), t;
	}
	function fr() {
		for (let e = 0; e < y.length; e++) {
			let t = y[e];
			if (!t.show || !t._show) continue;
			let n = t.side, i = n % 2, a, o, c = t.stroke(r, e), l = n == 0 || n == 3 ? -1 : 1, [u, f] = t._found;
			if (t.label != null) {
				let s = t.labelGap * l, p = Fn((t._lpos + s) * B);
				Tn(t.labelFont[0], c, "center", n == 2 ? kt : At), d.save(), i == 1 ? (a = o = 0, d.translate(p, Fn(ke + je / 2)), d.rotate((n == 3 ? -Mn : Mn) / 2)) : (a = Fn(Oe + Ae / 2), o = p);
				let m = qn(t.label) ? t.label(r, e, u, f) : t.label;
				d.fillText(m, a, o), d.restore();
			}
			if (f == 0) continue;
			let p = b[t.scale], m = i == 0 ? Ae : je, h = i == 0 ? Oe : ke, _ = t._splits, v = p.distr == 2 ? _.map((e) => Kt[e]) : _, x = p.distr == 2 ? Kt[_[1]] - Kt[_[0]] : u, S = t.ticks, C = t.border, w = S.show ? S.size : 0, T = Fn(w * B), E = Fn((t.alignTo == 2 ? t._size - w - t.gap : t.gap) * B), D = t._rotate * -Mn / 180, O = g(t._pos * B), k = O + (T + E) * l;
			o = i == 0 ? k : 0, a = i == 1 ? k : 0;
			let ee = t.font[0];
			Tn(ee, c, t.align == 1 ? jt : t.align == 2 ? Mt : D > 0 ? jt : D < 0 ? Mt : i == 0 ? "center" : n == 3 ? Mt : jt, D || i == 1 ? "middle" : n == 2 ? kt : At);
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
			S.show && rr(j, S.filter(r, v, e, f, x), i, n, O, T, G(S.width * B, 3), S.stroke(r, e), S.dash, S.cap);
			let ne = t.grid;
			ne.show && rr(j, ne.filter(r, v, e, f, x), i, i == 0 ? 2 : 1, i == 0 ? ke : Oe, i == 0 ? je : Ae, G(ne.width * B, 3), ne.stroke(r, e), ne.dash, ne.cap), C.show && rr([O], [1], +(i == 0), i == 0 ? 1 : 2, i == 1 ? ke : Oe, i == 1 ? je : Ae, G(C.width * B, 3), C.stroke(r, e), C.dash, C.cap);
		}
		da("drawAxes");
	}
	function _r(e) {
		v.forEach((t, n) => {
			n > 0 && (t._paths = null, e && (i == 1 ? (t.min = null, t.max = null) : t.facets.forEach((e) => {
				e.min = null, e.max = null;
			})));
		});
	}
	let vr = !1, br = !1, xr = [];
	function Sr() {
		br = !1;
		for (let e = 0; e < xr.length; e++) da(...xr[e]);
		xr.length = 0;
	}
	function Cr() {
		vr ||= (Tr(Er), !0);
	}
	function wr(e, t = !1) {
		vr = !0, br = t, e(r), Er(), t && xr.length > 0 && queueMicrotask(Sr);
	}
	r.batch = wr;
	function Er() {
		if (Me &&= (An(), !1), Pe &&= (Be(), !1), Ne) {
			if (V(p, jt, Se), V(p, kt, Ce), V(p, Dt, R), V(p, Ot, z), V(m, jt, Se), V(m, kt, Ce), V(m, Dt, R), V(m, Ot, z), V(f, Dt, be), V(f, Ot, xe), u.width = Fn(be * B), u.height = Fn(xe * B), y.forEach(({ _el: e, _show: t, _size: n, _pos: r, side: i }) => {
				if (e != null) {
					if (t) {
						let t = i === 3 || i === 0 ? n : 0, a = i % 2 == 1;
						V(e, a ? "left" : "top", r - t), V(e, a ? "width" : "height", n), V(e, a ? "top" : "left", a ? Ce : Se), V(e, a ? "height" : "width", a ? z : R), $t(e, ht);
					} else Qt(e, ht);
				}
			}), nn = an = sn = un = mn = hn = gn = _n = ln = null, vn = 1, Di(!0), Se != we || Ce != Te || R != Ee || z != De) {
				_r(!1);
				let e = R / Ee, t = z / De;
				if (F && !Fe && N.left >= 0) {
					N.left *= e, N.top *= t, Ar && rn(Ar, Fn(N.left), 0, R, z), jr && rn(jr, 0, Fn(N.top), R, z);
					for (let n = 0; n < Ye.length; n++) {
						let r = Ye[n];
						r != null && (Xe[n] *= e, Ze[n] *= t, rn(r, In(Xe[n]), In(Ze[n]), R, z));
					}
				}
				if (Z.show && !Ie && Z.left >= 0 && Z.width > 0) {
					Z.left *= e, Z.width *= e, Z.top *= t, Z.height *= t;
					for (let e in Ri) V(Ur, e, Z[e]);
				}
				we = Se, Te = Ce, Ee = R, De = z;
			}
			da("setSize"), Ne = !1;
		}
		be > 0 && xe > 0 && (d.clearRect(0, 0, u.width, u.height), da("drawClear"), w.forEach((e) => e()), da("draw")), Z.show && Ie && (Wr(Z), Ie = !1), F && Fe && (Ti(null, !0, !1), Fe = !1), M.show && M.live && Le && (Ci(), Le = !1), c || (c = !0, r.status = 1, da("ready")), Yt = !1, vr = !1;
	}
	r.redraw = (e, t) => {
		Pe = t || !1, e === !1 ? Cr() : Kr(S, D.min, D.max);
	};
	function Dr(e, n) {
		let i = b[e];
		if (i.from == null) {
			if (Nt == 0) {
				let t = i.range(r, n.min, n.max, e);
				n.min = t[0], n.max = t[1];
			}
			if (n.min > n.max) {
				let e = n.min;
				n.min = n.max, n.max = e;
			}
			if (Nt > 1 && n.min != null && n.max != null && n.max - n.min < 1e-16) return;
			e == S && i.distr == 2 && Nt > 0 && (n.min = pn(n.min, t[0]), n.max = pn(n.max, t[0]), n.min == n.max && n.max++), A[e] = n, Me = !0, Cr();
		}
	}
	r.setScale = Dr;
	let Or, kr, Ar, jr, Mr, Nr, Pr, Fr, Ir, Rr, q, J, zr = !1, Br = N.drag, Y = Br.x, X = Br.y;
	F && (N.x && (Or = tn(_t, m)), N.y && (kr = tn(vt, m)), D.ori == 0 ? (Ar = Or, jr = kr) : (Ar = kr, jr = Or), q = N.left, J = N.top);
	let Z = r.select = K({
		show: !0,
		over: !0,
		left: 0,
		width: 0,
		top: 0,
		height: 0
	}, e.select), Ur = Z.show ? tn(gt, Z.over ? m : p) : null;
	function Wr(e, t) {
		if (Z.show) {
			for (let t in e) Z[t] = e[t], t in Ri && V(Ur, t, e[t]);
			t !== !1 && da("setSelect");
		}
	}
	r.setSelect = Wr;
	function Gr(e) {
		if (v[e].show) P && $t(ce[e], ht);
		else if (P && Qt(ce[e], ht), F) {
			let t = Je ? Ye[0] : Ye[e];
			t != null && rn(t, -10, -10, R, z);
		}
	}
	function Kr(e, t, n) {
		Dr(e, {
			min: t,
			max: n
		});
	}
	function qr(e, t, n, a) {
		t.focus != null && mi(e), t.show != null && v.forEach((n, r) => {
			r > 0 && (e == r || e == null) && (n.show = t.show, Gr(r), i == 2 ? (Kr(n.facets[0].scale, null, null), Kr(n.facets[1].scale, null, null)) : Kr(n.scale, null, null), Cr());
		}), n !== !1 && da("setSeries", e, t), a && ga("setSeries", r, e, t);
	}
	r.setSeries = qr;
	function Jr(e, t) {
		K(x[e], t);
	}
	function Yr(e, t) {
		e.fill = W(e.fill || null), e.dir = H(e.dir, -1), t ??= x.length, x.splice(t, 0, e);
	}
	function Xr(e) {
		e == null ? x.length = 0 : x.splice(e, 1);
	}
	r.addBand = Yr, r.setBand = Jr, r.delBand = Xr;
	function Q(e, t) {
		v[e].alpha = t, F && Ye[e] != null && (Ye[e].style.opacity = t), P && ce[e] && (ce[e].style.opacity = t);
	}
	let Zr, si, di, fi = { focus: !0 };
	function mi(e) {
		if (e != di) {
			let t = e == null, n = Ke.alpha != 1;
			v.forEach((r, a) => {
				if (i == 1 || a > 0) {
					let i = t || a == 0 || a == e;
					r._focus = t ? null : i, n && Q(a, i ? 1 : Ke.alpha);
				}
			}), di = e, n && Cr();
		}
	}
	P && qe && ve(zt, L, (e) => {
		N._lock || (We(e), di != null && qr(null, fi, !0, $.setSeries));
	});
	function hi(e, t, n) {
		let r = b[t];
		n && (e = e / B - (r.ori == 1 ? Ce : Se));
		let i = R;
		r.ori == 1 && (i = z, e = i - e), r.dir == -1 && (e = i - e);
		let a = r._min, o = r._max, s = e / i, c = a + (o - a) * s, l = r.distr;
		return l == 3 ? zn(10, c) : l == 4 ? Un(c, r.asinh) : l == 100 ? r.bwd(c) : c;
	}
	function gi(e, n) {
		return pn(hi(e, S, n), t[0], Vt, Ht);
	}
	r.valToIdx = (e) => pn(e, t[0]), r.posToIdx = gi, r.posToVal = hi, r.valToPos = (e, t, n) => b[t].ori == 0 ? a(e, b[t], n ? Ae : R, n ? Oe : 0) : o(e, b[t], n ? je : z, n ? ke : 0), r.setCursor = (e, t, n) => {
		q = e.left, J = e.top, Ti(null, t, n);
	};
	function _i(e, t) {
		V(Ur, jt, Z.left = e), V(Ur, Dt, Z.width = t);
	}
	function vi(e, t) {
		V(Ur, kt, Z.top = e), V(Ur, Ot, Z.height = t);
	}
	let yi = D.ori == 0 ? _i : vi, bi = D.ori == 1 ? _i : vi;
	function xi() {
		if (P && M.live) for (let e = +(i == 2); e < v.length; e++) {
			if (e == 0 && de) continue;
			let t = M.values[e], n = 0;
			for (let r in t) le[e][n++].firstChild.nodeValue = t[r];
		}
	}
	function Ci(e, t) {
		if (e != null && (e.idxs ? e.idxs.forEach((e, t) => {
			ae[t] = e;
		}) : pr(e.idx) || ae.fill(e.idx), M.idx = ae[0]), P && M.live) {
			for (let e = 0; e < v.length; e++) (e > 0 || i == 1 && !de) && wi(e, ae[e]);
			xi();
		}
		Le = !1, t !== !1 && da("setLegend");
	}
	r.setLegend = Ci;
	function wi(e, n) {
		let i = v[e], a = e == 0 && O == 2 ? Kt : t[e], o;
		de ? o = i.values(r, e, n) ?? fe : (o = i.value(r, n == null ? null : a[n], e, n), o = o == null ? fe : { _: o }), M.values[e] = o;
	}
	function Ti(e, n, a) {
		Ir = q, Rr = J, [q, J] = N.move(r, q, J), N.left = q, N.top = J, F && (Ar && rn(Ar, Fn(q), 0, R, z), jr && rn(jr, 0, Fn(J), R, z));
		let o, s = Vt > Ht;
		Zr = U, si = null;
		let c = D.ori == 0 ? R : z, l = D.ori == 1 ? R : z;
		if (q < 0 || Nt == 0 || s) {
			o = N.idx = null;
			for (let e = 0; e < v.length; e++) {
				let t = Ye[e];
				t != null && rn(t, -10, -10, R, z);
			}
			qe && qr(null, fi, !0, e == null && $.setSeries), M.live && (ae.fill(o), Le = !0);
		} else {
			let e, n, a;
			i == 1 && (e = D.ori == 0 ? q : J, n = hi(e, S), o = N.idx = pn(n, t[0], Vt, Ht), a = k(t[0][o], D, c, 0));
			let s = -10, u = -10, d = 0, f = 0, p = !0, m = "", h = "";
			for (let e = +(i == 2); e < v.length; e++) {
				let g = v[e], _ = ae[e], y = _ == null ? null : i == 1 ? t[e][_] : t[e][1][_], x = N.dataIdx(r, e, o, n), S = x == null ? null : i == 1 ? t[e][x] : t[e][1][x];
				if (Le = Le || S != y || x != _, ae[e] = x, e > 0 && g.show) {
					let n = x == null ? -10 : x == o ? a : k(i == 1 ? t[0][x] : t[e][0][x], D, c, 0), _ = S == null ? -10 : ee(S, i == 1 ? b[g.scale] : b[g.facets[1].scale], l, 0);
					if (qe && S != null) {
						let t = D.ori == 1 ? q : J, n = Nn(Ke.dist(r, e, x, _, t));
						if (n < Zr) {
							let r = Ke.bias;
							if (r != 0) {
								let i = hi(t, g.scale), a = S >= 0 ? 1 : -1, o = i >= 0 ? 1 : -1;
								o == a && (o == 1 ? r == 1 ? S >= i : S <= i : r == 1 ? S <= i : S >= i) && (Zr = n, si = e);
							} else Zr = n, si = e;
						}
					}
					if (Le || Je) {
						let t, i;
						D.ori == 0 ? (t = n, i = _) : (t = _, i = n);
						let a, o, c, l, g, v, y = !0, b = Ge.bbox;
						if (b != null) {
							y = !1;
							let t = b(r, e);
							c = t.left, l = t.top, a = t.width, o = t.height;
						} else c = t, l = i, a = o = Ge.size(r, e);
						if (v = Ge.fill(r, e), g = Ge.stroke(r, e), Je) e == si && Zr <= Ke.prox && (s = c, u = l, d = a, f = o, p = y, m = v, h = g);
						else {
							let t = Ye[e];
							t != null && (Xe[e] = c, Ze[e] = l, cn(t, a, o, y), on(t, v, g), rn(t, In(c), In(l), R, z));
						}
					}
				}
			}
			if (Je) {
				let e = Ke.prox;
				if (Le || (di == null ? Zr <= e : Zr > e || si != di)) {
					let e = Ye[0];
					e != null && (Xe[0] = s, Ze[0] = u, cn(e, d, f, p), on(e, m, h), rn(e, In(s), In(u), R, z));
				}
			}
		}
		if (Z.show && zr) {
			if (e != null) {
				let [t, n] = $.scales, [r, i] = $.match, [a, o] = e.cursor.sync.scales, s = e.cursor.drag;
				if (Y = s._x, X = s._y, Y || X) {
					let { left: s, top: u, width: d, height: f } = e.select, p = e.scales[a].ori, m = e.posToVal, h, g, _, v, y, x = t != null && r(t, a), S = n != null && i(n, o);
					x && Y ? (p == 0 ? (h = s, g = d) : (h = u, g = f), _ = b[t], v = k(m(h, a), _, c, 0), y = k(m(h + g, a), _, c, 0), yi(Ln(v, y), Nn(y - v))) : yi(0, c), S && X ? (p == 1 ? (h = s, g = d) : (h = u, g = f), _ = b[n], v = ee(m(h, o), _, l, 0), y = ee(m(h + g, o), _, l, 0), bi(Ln(v, y), Nn(y - v))) : bi(0, l);
				} else zi();
			} else {
				let e = Nn(Ir - Mr), t = Nn(Rr - Nr);
				if (D.ori == 1) {
					let n = e;
					e = t, t = n;
				}
				Y = Br.x && e >= Br.dist, X = Br.y && t >= Br.dist;
				let n = Br.uni;
				n == null ? Br.x && Br.y && (Y || X) && (Y = X = !0) : Y && X && (Y = e >= n, X = t >= n, !Y && !X && (t > e ? X = !0 : Y = !0));
				let r, i;
				Y && (D.ori == 0 ? (r = Pr, i = q) : (r = Fr, i = J), yi(Ln(r, i), Nn(i - r)), X || bi(0, l)), X && (D.ori == 1 ? (r = Pr, i = q) : (r = Fr, i = J), bi(Ln(r, i), Nn(i - r)), Y || yi(0, c)), !Y && !X && (yi(0, 0), bi(0, 0));
			}
		}
		if (Br._x = Y, Br._y = X, e == null) {
			if (a) {
				if (ma != null) {
					let [e, t] = $.scales;
					$.values[0] = e == null ? null : hi(D.ori == 0 ? q : J, e), $.values[1] = t == null ? null : hi(D.ori == 1 ? q : J, t);
				}
				ga(Ft, r, q, J, R, z, o);
			}
			if (qe) {
				let e = a && $.setSeries, t = Ke.prox;
				di == null ? Zr <= t && qr(si, fi, !0, e) : Zr > t ? qr(null, fi, !0, e) : si != di && qr(si, fi, !0, e);
			}
		}
		Le && (M.idx = o, Ci()), n !== !1 && da("setCursor");
	}
	let Ei = null;
	Object.defineProperty(r, "rect", { get() {
		return Ei ?? Di(!1), Ei;
	} });
	function Di(e = !1) {
		e ? Ei = null : (Ei = m.getBoundingClientRect(), da("syncRect", Ei));
	}
	function Oi(e, t, n, r, i, a, o) {
		N._lock || zr && e != null && e.movementX == 0 && e.movementY == 0 || (ki(e, t, n, r, i, a, o, !1, e != null), e == null ? Ti(t, !0, !1) : Ti(null, !0, !0));
	}
	function ki(e, t, n, i, a, o, c, l, u) {
		if (Ei ?? Di(!1), We(e), e != null) n = e.clientX - Ei.left, i = e.clientY - Ei.top;
		else {
			if (n < 0 || i < 0) {
				q = -10, J = -10;
				return;
			}
			let [e, r] = $.scales, c = t.cursor.sync, [l, u] = c.values, [d, f] = c.scales, [p, m] = $.match, h = t.axes[0].side % 2 == 1, g = D.ori == 0 ? R : z, _ = D.ori == 1 ? R : z, v = h ? o : a, y = h ? a : o, x = h ? i : n, S = h ? n : i;
			if (n = d == null ? x / v * g : p(e, d) ? s(l, b[e], g, 0) : -10, i = f == null ? S / y * _ : m(r, f) ? s(u, b[r], _, 0) : -10, D.ori == 1) {
				let e = n;
				n = i, i = e;
			}
		}
		u && (t == null || t.cursor.event.type == Ft) && ((n <= 1 || n >= R - 1) && (n = nr(n, R)), (i <= 1 || i >= z - 1) && (i = nr(i, z))), l ? (Mr = n, Nr = i, [Pr, Fr] = N.move(r, n, i)) : (q = n, J = i);
	}
	let Ri = {
		width: 0,
		height: 0,
		left: 0,
		top: 0
	};
	function zi() {
		Wr(Ri, !1);
	}
	let Bi, Vi, Hi, Ji;
	function Yi(e, t, n, i, a, o, s) {
		zr = !0, Y = X = Br._x = Br._y = !1, ki(e, t, n, i, a, o, s, !0, !1), e != null && (ve(Lt, qt, Xi, !1), ga(It, r, Pr, Fr, R, z, null));
		let { left: c, top: l, width: u, height: d } = Z;
		Bi = c, Vi = l, Hi = u, Ji = d;
	}
	function Xi(e, t, n, i, a, o, s) {
		zr = Br._x = Br._y = !1, ki(e, t, n, i, a, o, s, !1, !0);
		let { left: c, top: l, width: u, height: d } = Z, f = u > 0 || d > 0, p = Bi != c || Vi != l || Hi != u || Ji != d;
		if (f && p && Wr(Z), Br.setScale && f && p) {
			let e = c, t = u, n = l, r = d;
			if (D.ori == 1 && (e = l, t = d, n = c, r = u), Y && Kr(S, hi(e, S), hi(e + t, S)), X) for (let e in b) {
				let t = b[e];
				e != S && t.from == null && t.min != U && Kr(e, hi(n + r, e), hi(n, e));
			}
			zi();
		} else N.lock && (N._lock = !N._lock, Ti(t, !0, e != null));
		e != null && (ye(Lt, qt), ga(Lt, r, q, J, R, z, null));
	}
	function na(e, t, n, r, i, a, o) {
		if (N._lock) return;
		We(e);
		let s = zr;
		if (zr) {
			let e = !0, t = !0, n, r;
			D.ori == 0 ? (n = Y, r = X) : (n = X, r = Y), n && r && (e = q <= 10 || q >= R - 10, t = J <= 10 || J >= z - 10), n && e && (q = q < Pr ? 0 : R), r && t && (J = J < Fr ? 0 : z), Ti(null, !0, !0), zr = !1;
		}
		q = -10, J = -10, ae.fill(null), Ti(null, !0, !0), s && (zr = s);
	}
	function oa(e, t, n, i, a, o, s) {
		N._lock || (We(e), Zt(), zi(), e != null && ga(Bt, r, q, J, R, z, null));
	}
	function sa() {
		y.forEach(Za), Re(r.width, r.height, !0);
	}
	dn(Wt, Jt, sa);
	let la = {};
	la.mousedown = Yi, la.mousemove = Oi, la.mouseup = Xi, la.dblclick = oa, la.setSeries = (e, t, n, i) => {
		let a = $.match[2];
		n = a(r, t, n), n != -1 && qr(n, i, !0, !1);
	}, F && (ve(It, m, Yi), ve(Ft, m, Oi), ve(Rt, m, (e) => {
		We(e), Di(!1);
	}), ve(zt, m, na), ve(Bt, m, oa), Fa.add(r), r.syncRect = Di);
	let ua = r.hooks = e.hooks || {};
	function da(e, t, n) {
		br ? xr.push([
			e,
			t,
			n
		]) : e in ua && ua[e].forEach((e) => {
			e.call(null, r, t, n);
		});
	}
	(e.plugins || []).forEach((e) => {
		for (let t in e.hooks) ua[t] = (ua[t] || []).concat(e.hooks[t]);
	});
	let fa = (e, t, n) => n, $ = K({
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
			fa
		],
		values: [null, null]
	}, N.sync);
	$.match.length == 2 && $.match.push(fa), N.sync = $;
	let ma = $.key, ha = ra(ma);
	function ga(e, t, n, r, i, a, o) {
		$.filters.pub(e, t, n, r, i, a, o) && ha.pub(e, t, n, r, i, a, o);
	}
	ha.sub(r);
	function _a(e, t, n, r, i, a, o) {
		$.filters.sub(e, t, n, r, i, a, o) && la[e](null, t, n, r, i, a, o);
	}
	r.pub = _a;
	function va() {
		ha.unsub(r), Fa.delete(r), _e.clear(), fn(Wt, Jt, sa), l.remove(), L?.remove(), da("destroy");
	}
	r.destroy = va;
	function ya() {
		da("init", e, t), Xt(t || e.data, !1), A[S] ? Dr(S, A[S]) : Zt(), Ie = Z.show && (Z.width > 0 || Z.height > 0), Fe = Le = !0, Re(e.width, e.height);
	}
	return v.forEach($e), y.forEach(rt), n ? n instanceof HTMLElement ? (n.appendChild(l), ya()) : n(r, ya) : ya(), r;
}
Qa.assign = K, Qa.fmtNum = An, Qa.rangeNum = En, Qa.rangeLog = bn, Qa.rangeAsinh = xn, Qa.orient = oa, Qa.pxRatio = B, Qa.join = wr, Qa.fmtDate = Lr, Qa.tzDate = q, Qa.sync = ra;
{
	Qa.addGap = da, Qa.clipGaps = ua;
	let e = Qa.paths = { points: wa };
	e.linear = Oa, e.stepped = ka, e.bars = ja, e.spline = Na;
}
// ../page/src/ui/chart.ts
var $a = 100, eo = 1 / 40, to = 5, no = 4e3;
function ro(e) {
	let t = Math.floor(e.length * eo / 2), n = [0], r = [0];
	for (let t of e) {
		let e = t !== null && Number.isFinite(t);
		n.push((n.at(-1) ?? 0) + (e ? t : 0)), r.push((r.at(-1) ?? 0) + +!!e);
	}
	return e.map((i, a) => {
		let o = Math.max(0, a - t), s = Math.min(e.length, a + t + 1), c = (r[s] ?? 0) - (r[o] ?? 0);
		return c === 0 ? null : ((n[s] ?? 0) - (n[o] ?? 0)) / c;
	});
}
var io = class {
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
		this.#t = new Qa({
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
						size: to,
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
		this.#n.push(...e), this.#n.length > no && (this.#n = this.#n.filter((e, t) => t % 2 == 1)), this.#a();
	}
	addHeldout(e, t) {
		this.#r.push([e, t]), this.#a();
	}
	#a() {
		this.#i === 0 && (this.#i = window.setTimeout(() => {
			this.#i = 0, requestAnimationFrame(() => this.#o());
		}, $a));
	}
	#o() {
		let e = new Map(this.#r), t = new Map(this.#n), n = [.../* @__PURE__ */ new Set([...t.keys(), ...e.keys()])].sort((e, t) => e - t), r = n.map((e) => t.get(e) ?? null), i = n.map((t) => e.get(t) ?? null);
		this.#t.setData([
			n,
			r,
			ro(r),
			i
		]);
		let [a, o] = this.#n.at(-1) ?? [], s = this.#r.at(-1)?.[1];
		this.#e.setAttribute("aria-label", a === void 0 || o === void 0 ? "Loss over steps: nothing yet" : `Loss over steps: ${o.toFixed(3)} at step ${a}` + (s === void 0 ? "" : `, held-out ${s.toFixed(3)}`));
	}
}, ao = class {
	#e;
	#t = m("dl", { class: "figures" });
	#n;
	#r = m("div", { class: "bars" });
	#i = () => this.#a();
	constructor(e, t) {
		this.#e = e;
		let n = m("div", {
			class: "loss",
			role: "img"
		}), r = m("p", {
			class: "keys",
			"aria-hidden": !0
		}, m("span", {}, "loss of a step"), m("span", { class: "smoothed" }, "smoothed"), m("span", { class: "heldout" }, "held-out"));
		t.append(this.#t, r, n, this.#r), this.#n = new io(n), e.on("change:figures", this.#i), this.#a();
	}
	restyle() {
		this.#a();
	}
	dispose() {
		this.#e.off("change:figures", this.#i);
	}
	#a() {
		let e = this.#e.get("figures");
		this.#n.reset(so(this.#e.get("losses")), so(this.#e.get("heldout"))), this.#t.replaceChildren(Je("Step", `${e.step}`), Je("Loss", oo(e.loss)), Je("Held-out", oo(e.heldout)), Je("Time of a step", e.step_s === null ? "–" : f(e.step_s))), this.#r.replaceChildren(...co(e));
	}
}, oo = (e) => e === null ? "–" : e.toFixed(3);
function so(e) {
	let t = Re(e);
	return Array.from({ length: t.length / 2 }, (e, n) => [t[2 * n] ?? 0, t[2 * n + 1] ?? 0]);
}
function co({ planned_bytes: e, measured_bytes: n, by_class: r }) {
	let i = Math.max(e, n, 1), a = (e, t, n) => {
		let r = m("i", {
			class: e,
			title: n
		});
		return r.style.width = `${100 * t / i}%`, r;
	}, o = t.filter((e) => (r[e] ?? 0) > 0).map((e) => a(`swatch-${e}`, r[e], `${e}: ${c(r[e])}`)), s = n - e, l = s === 0 ? "0 B off" : `${u(Math.abs(s))} B ${s > 0 ? "more" : "less"}`;
	return [
		m("span", {}, "Planned"),
		m("div", { class: "bar" }, ...o),
		m("span", { "data-figure": "Planned" }, c(e)),
		m("span", {}, "Measured"),
		m("div", { class: "bar" }, a("measured", n, `measured: ${c(n)}`)),
		m("span", { "data-figure": "Measured" }, `${c(n)}, ${l}`)
	];
}
// ../page/node_modules/uplot/dist/uPlot.min.css?inline
var lo = ".uplot,.uplot *,.uplot :before,.uplot :after{box-sizing:border-box}.uplot{width:min-content;font-family:system-ui,-apple-system,Segoe UI,Roboto,Helvetica Neue,Arial,Noto Sans,sans-serif,Apple Color Emoji,Segoe UI Emoji,Segoe UI Symbol,Noto Color Emoji;line-height:1.5}.u-title{text-align:center;font-size:18px;font-weight:700}.u-wrap{-webkit-user-select:none;user-select:none;position:relative}.u-over,.u-under{position:absolute}.u-under{overflow:hidden}.uplot canvas{width:100%;height:100%;display:block;position:relative}.u-axis{position:absolute}.u-legend{text-align:center;margin:auto;font-size:14px}.u-inline{display:block}.u-inline *{display:inline-block}.u-inline tr{margin-right:16px}.u-legend th{font-weight:600}.u-legend th>*{vertical-align:middle;display:inline-block}.u-legend .u-marker{width:1em;height:1em;margin-right:4px;background-clip:padding-box!important}.u-inline.u-live th:after{content:\":\";vertical-align:middle}.u-inline:not(.u-live) .u-value{display:none}.u-series>*{padding:4px}.u-series th{cursor:pointer}.u-legend .u-off>*{opacity:.3}.u-select{pointer-events:none;background:#00000012;position:absolute}.u-cursor-x,.u-cursor-y{pointer-events:none;will-change:transform;position:absolute;top:0;left:0}.u-hz .u-cursor-x,.u-vt .u-cursor-y{border-right:1px dashed #607d8b;height:100%}.u-hz .u-cursor-y,.u-vt .u-cursor-x{border-bottom:1px dashed #607d8b;width:100%}.u-cursor-pt{pointer-events:none;will-change:transform;border:0 solid;border-radius:50%;position:absolute;top:0;left:0;background-clip:padding-box!important}.u-axis.u-off,.u-select.u-off,.u-cursor-x.u-off,.u-cursor-y.u-off,.u-cursor-pt.u-off{display:none}", uo = "[hidden]{display:none!important}:focus-visible{outline:2px solid var(--focus);outline-offset:2px}.unseen{clip-path:inset(50%);white-space:nowrap;width:1px;height:1px;position:absolute;overflow:hidden}", fo = ".budget{grid-template-columns:auto minmax(0,1fr) 11ch;align-items:center;gap:14px;margin-bottom:12px;display:grid}.budget label{font-size:14px;font-weight:600}.budget input{cursor:pointer;appearance:none;background:0 0;width:100%;height:32px;margin:0}.budget input:disabled{cursor:default;opacity:.4}.budget input::-webkit-slider-runnable-track{background:var(--faint);border-radius:2px;height:3px}.budget input::-moz-range-track{background:var(--faint);border-radius:2px;height:3px}.budget input::-webkit-slider-thumb{border:3px solid var(--surface);background:var(--accent);width:20px;height:20px;box-shadow:0 0 0 1px var(--accent);appearance:none;border-radius:50%;margin-top:-8.5px}.budget input::-moz-range-thumb{border:3px solid var(--surface);background:var(--accent);width:14px;height:14px;box-shadow:0 0 0 1px var(--accent);border-radius:50%}.budget output{font:400 15px/1.3 var(--mono);text-align:right;white-space:nowrap}.refusal{border:1px solid var(--rule);border-left:3px solid var(--accent);border-radius:var(--radius);flex-wrap:wrap;align-items:center;gap:8px 14px;margin-bottom:12px;padding:10px 14px;font-size:14px;display:flex}.refusal p{flex:280px}.figures{border-top:1px solid var(--rule);border-bottom:1px solid var(--rule);grid-template-columns:repeat(auto-fit,minmax(104px,1fr));gap:10px 18px;margin-bottom:8px;padding:10px 0 12px;display:grid}.figures dt{color:var(--muted);font-size:12px;line-height:1.35}.figures dd{font:400 15px/1.35 var(--mono)}.figures dd small{color:var(--muted);font:400 12px/1.35 var(--sans);display:block}.arena-row{grid-template-columns:minmax(0,1fr) 232px;gap:20px;display:grid}.arena{cursor:crosshair;touch-action:pan-y;height:400px;position:relative}.arena canvas{width:100%;height:100%;position:absolute;inset:0}.arena canvas+canvas{pointer-events:none}.legend{flex-wrap:wrap;gap:6px;margin:6px 0 0 58px;display:flex}.legend>*{color:var(--ink);font:inherit;background:0 0;border:1px solid #0000;border-radius:4px;align-items:baseline;gap:7px;padding:3px 8px;font-size:13px;display:flex}.legend button{cursor:pointer}.legend button:hover{border-color:var(--rule)}.legend button[aria-pressed=true]{border-color:var(--ink)}.legend i{border-radius:2px;width:10px;height:10px}.legend b{color:var(--muted);font:400 12px/1 var(--mono)}.swatch-weight{background:var(--class-weight)}.swatch-frozen{background:var(--class-frozen)}.swatch-optimizer{background:var(--class-optimizer)}.swatch-gradient{background:var(--class-gradient)}.swatch-activation{background:var(--class-activation)}.swatch-workspace{background:var(--class-workspace)}.swatch-input{background:var(--class-input)}.swatch-gaps{background:var(--rule)}.detail{padding-top:16px;font-size:13px;line-height:1.45}.detail h3{font:400 14px/1.35 var(--mono);overflow-wrap:anywhere;margin:0 0 8px}.detail dt{color:var(--muted);margin-top:7px;font-size:12px}.detail dd{overflow-wrap:anywhere}.detail .hint{max-width:30ch}.peak-table{margin-top:12px;font-size:13px}.peak-table summary{color:var(--muted);cursor:pointer}.peak-table .scroll{max-height:320px;margin-top:8px;overflow:auto}.peak-table table{border-collapse:collapse;width:100%}.peak-table caption{color:var(--muted);text-align:left;padding-bottom:6px}.peak-table th,.peak-table td{border-bottom:1px solid var(--rule);text-align:left;white-space:nowrap;padding:3px 14px 3px 0}.peak-table td:nth-child(n+4),.peak-table th:nth-child(n+4){text-align:right}.peak-table td{font-family:var(--mono);font-size:12px}@media (max-width:860px){.arena-row{grid-template-columns:minmax(0,1fr);gap:8px}.detail{min-height:64px;padding-top:4px}.detail .hint{max-width:none}}@media (max-width:720px){.arena{height:330px}.legend{margin-left:0}.budget{grid-template-columns:auto minmax(0,1fr);gap:0 12px}.budget input{order:3;grid-column:1/-1;height:40px}.figures{grid-template-columns:repeat(2,minmax(0,1fr))}}", po = ":root{--lightningcss-light:initial;--lightningcss-dark: ;color-scheme:light dark;--sans:\"IBM Plex Sans\", system-ui, sans-serif;--mono:\"IBM Plex Mono\", ui-monospace, monospace;--ground:#f4f6f7;--surface:#fff;--ink:#161b20;--muted:#566470;--faint:#b3bec7;--rule:#dfe5e9;--edge:#8695a1;--accent:#c73e1d;--accent-strong:#a93216;--on-accent:#fff;--focus:#1a5fd0;--class-weight:#3f6ea8;--class-frozen:#86a6cc;--class-optimizer:#55a39b;--class-gradient:#8b69b0;--class-activation:#dba33a;--class-workspace:#a08468;--class-input:#a5b0b8;--gap:24px;--radius:6px}@media (prefers-color-scheme:dark){:root{--lightningcss-light: ;--lightningcss-dark:initial;--ground:#0f1316;--surface:#161b1f;--ink:#e6ebee;--muted:#97a4ae;--faint:#46535d;--rule:#273038;--edge:#66747f;--accent:#ff7a55;--accent-strong:#ff9273;--on-accent:#1c0d07;--focus:#7db1ff;--class-weight:#5f92d0;--class-frozen:#3c5f8c;--class-optimizer:#4f9d95;--class-gradient:#a184c6;--class-activation:#d6a03c;--class-workspace:#9a7d62;--class-input:#76838d}}", mo = ":host{--lightningcss-light:initial;--lightningcss-dark: ;color-scheme:light;display:block}:host(.dark){--lightningcss-light: ;--lightningcss-dark:initial;color-scheme:dark}*,:before,:after{box-sizing:border-box}h2,h3,p,dl,dd{margin:0}.widget{border:1px solid var(--rule);border-radius:var(--radius);background:var(--surface);color:var(--ink);font:400 14px/1.5 var(--sans);padding:14px 18px 12px;container:widget/inline-size}.head{flex-wrap:wrap;align-items:baseline;gap:0 16px;margin-bottom:6px;display:flex}h2{font-size:15px;font-weight:600}h3{font-size:14px;font-weight:600}.hint,.unit{color:var(--muted);font-size:13px}.why{margin-bottom:10px;font-size:13px}.arena{height:340px}.arena:focus-visible{outline-offset:0}.tables{grid-template-columns:minmax(0,1fr);gap:2px;display:grid}.peak-table{margin-top:4px}.peak-table .numbers{width:auto}.peak-table .numbers td:nth-child(n+2),.peak-table .numbers th:nth-child(n+2){text-align:right}.peak-table th[scope=row]{font-weight:400}.peak-table th i{border-radius:2px;width:10px;height:10px;margin-right:7px;display:inline-block}.pair{grid-template-columns:repeat(2,minmax(0,1fr));gap:18px;display:grid}.difference{margin-top:14px;overflow-x:auto}.difference table{border-collapse:collapse;font-size:13px}.difference th,.difference td{border-bottom:1px solid var(--rule);text-align:left;vertical-align:baseline;padding:3px 22px 3px 0}.difference th[scope=row]{white-space:nowrap;font-weight:400}.difference th i{border-radius:2px;width:10px;height:10px;margin-right:7px;display:inline-block}.difference td{font-family:var(--mono);white-space:nowrap;font-size:12px}.difference .choice td{white-space:normal}.figures:first-child{border-top:0;padding-top:0}.loss{height:240px;overflow:hidden}.keys{color:var(--muted);flex-wrap:wrap;gap:2px 16px;font-size:13px;display:flex}.keys span:before{content:\"\";vertical-align:middle;background:var(--faint);width:14px;height:2px;margin-right:6px;display:inline-block}.keys .smoothed:before{background:var(--ink)}.keys .heldout:before{background:var(--accent)}.bars{grid-template-columns:auto minmax(0,1fr) auto;align-items:center;gap:6px 12px;margin-top:10px;font-size:13px;display:grid}.bars span:nth-child(3n+1){color:var(--muted)}.bars span:nth-child(3n){font:400 13px/1.4 var(--mono);text-align:right}.bar{background:var(--rule);border-radius:2px;height:14px;display:flex;overflow:hidden}.bar i{height:100%}.bar .measured{background:var(--ink)}@container widget (width<=720px){.arena-row,.pair{grid-template-columns:minmax(0,1fr);gap:8px}.arena{height:280px}.legend{margin-left:0}.detail{min-height:64px;padding-top:4px}.detail .hint{max-width:none}}@container widget (width<=480px){.budget{grid-template-columns:auto minmax(0,1fr);gap:0 12px}.budget input{order:3;grid-column:1/-1}.figures{grid-template-columns:repeat(2,minmax(0,1fr))}}", ho = po.replaceAll(":root", ":host").replace(/@media\s*\(prefers-color-scheme:\s*dark\)\s*\{\s*:host/, "@media all{:host(.dark)"), go = new CSSStyleSheet();
go.replaceSync([
	ho,
	uo,
	fo,
	lo,
	mo
].join("\n"));
function _o(e) {
	let t = e.attachShadow({ mode: "open" });
	return t.adoptedStyleSheets = [go], t;
}
// src/theme.ts
var vo = 127.5;
function yo(e) {
	let [t = 0, n = 0, r = 0] = (getComputedStyle(e).color.match(/[\d.]+/g) ?? []).map(Number);
	return .3 * t + .6 * n + .1 * r > vo;
}
function bo(e, t, n) {
	let r = !1, i = () => {
		let t = e.parentElement;
		if (t === null || !e.isConnected) return;
		let i = e.classList.contains("dark");
		e.classList.toggle("dark", yo(t)) === i && r || n(), r = !0;
	}, a = new MutationObserver(i);
	for (let e of [document.documentElement, document.body]) a.observe(e, { attributes: !0 });
	matchMedia("(prefers-color-scheme: dark)").addEventListener("change", i, { signal: t });
	let o = new ResizeObserver(i);
	o.observe(e), t.addEventListener("abort", () => {
		a.disconnect(), o.disconnect();
	}), i();
}
// src/index.ts
function xo(e, t) {
	switch (e.get("kind")) {
		case "plan": return new nt(e, t);
		case "compare": return new Ge(e, t);
		case "run": return new ao(e, t);
	}
}
function So({ model: e, el: t }) {
	let n = document.createElement("div");
	n.dataset.lmSuppressShortcuts = "true", t.append(n);
	let r = document.createElement("div");
	r.className = "widget", _o(n).append(r);
	let i = xo(e, r), a = new AbortController();
	return bo(n, a.signal, () => i.restyle()), () => {
		a.abort(), i.dispose();
	};
}
var Co = { render: So };
export { Co as default };
