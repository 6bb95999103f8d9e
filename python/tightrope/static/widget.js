// ../page/src/format.ts
var e = [
	"B",
	"KiB",
	"MiB",
	"GiB",
	"TiB"
], t = [
	"",
	"k",
	"M",
	"G",
	"T"
], n = 1024, r = 1e3, i = 3;
function a(e, t, n) {
	let a = 0, o = e;
	for (; a < n.length - 1 && Number(o.toPrecision(i)) >= Math.min(t, r);) o /= t, a += 1;
	let s = Math.max(1, Math.floor(Math.log10(Math.max(o, 1))) + 1);
	return [a === 0 ? String(Math.round(o)) : o.toFixed(Math.max(0, i - s)), n[a] ?? ""];
}
function o(t) {
	return a(t, n, e).join(" ");
}
function s(e) {
	return o(e).replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ");
}
function c(e) {
	return Math.round(e).toString().replace(/\B(?=(\d{3})+$)/g, ",");
}
function l(e) {
	return a(e, r, t).join("");
}
function u(e) {
	if (e >= 1) return `${e.toFixed(e < 10 ? 2 : 1)} s`;
	let t = e * 1e3;
	return t > 0 && t < .1 ? `${(t * 1e3).toFixed(1)} µs` : t >= 100 ? `${Math.round(t)} ms` : t >= 1 ? `${t.toFixed(1)} ms` : `${t.toFixed(2)} ms`;
}
function d(e) {
	let t = e * 100;
	return t > 0 && t < .1 ? "< 0.1 %" : `${t.toFixed(+(t < 10))} %`;
}
// ../page/src/ui/dom.ts
function f(e, t = {}, ...n) {
	let r = document.createElement(e);
	for (let [e, n] of Object.entries(t)) n !== void 0 && n !== !1 && r.setAttribute(e, n === !0 ? "" : String(n));
	return r.append(...n), r;
}
function p(e, t) {
	e.textContent !== t && (e.textContent = t);
}
function m(e, t, n = "button") {
	let r = f("button", {
		type: "button",
		class: n
	}, e);
	return r.addEventListener("click", t), r;
}
// ../page/src/arena/explain.ts
var h = {
	weight: "a weight: every step reads it, and the update writes it",
	frozen: "a frozen weight: steps read it, and none writes it",
	optimizer: "state of the optimizer: each update reads and writes it",
	gradient: "a sum over micro-batches: each adds to it, and the update reads it",
	activation: "kept from one program to the next",
	workspace: "scratch that every step uses again",
	input: "the host writes it before each step"
};
function g(e, t) {
	let n = e[t];
	return n === void 0 ? `step ${t}` : `step ${t} · ${n.op} (${n.phase})`;
}
function _(e, t, n) {
	let r = e.tensors[t], i = [
		["Type", r.type],
		["Class", r.class],
		["Size", `${o(r.bytes)} · ${c(r.bytes)} B`]
	], a = r.read_by.find((e) => e >= n) ?? null;
	if (r.kept && i.push(["Kept", `For the whole run: ${h[r.class]}.`]), r.kept || i.push(["Made by", g(e.ops, r.birth)]), a !== null) i.push(["Read next by", g(e.ops, a)]);
	else {
		let t = r.read_by.at(-1);
		t !== void 0 && i.push(["Last read by", g(e.ops, t)]);
	}
	if (!r.kept) {
		let t = r.birth, n = r.death - t + 1;
		i.push(["Alive", `Steps ${t} to ${r.death}, ${n} of ${e.ops.length}`]);
	}
	return i.push(["Recomputing", v(e, r)]), {
		title: r.name,
		rows: i
	};
}
function v({ name: e, ops: t }, { kept: n, again_s: r }) {
	if (r === null) return n ? "Not possible: it is state." : "Not possible at its next use.";
	let i = t.reduce((e, { seconds: t }) => e + t, 0), a = i > 0 ? `, ${d(r / i)} of program “${e}”` : "";
	return `Would take ${u(r)}${a}.`;
}
// ../page/src/arena/detail.ts
var y = "Point at the map, or focus it and use the arrow keys, to see what a tensor is and why it’s alive.";
function b(e, t, n) {
	if (t === null || n === null) {
		e.replaceChildren(f("p", { class: "hint" }, y));
		return;
	}
	let r = t.program.ops[n.step], i = o(r?.live ?? 0), a = [f("p", { class: "hint" }, `Step ${n.step} · ${r?.op ?? ""} · ${i} live`)];
	if (n.tensor === null) a.push(f("p", { class: "hint" }, "Nothing is here at this step."));
	else {
		let { title: e, rows: r } = _(t.program, n.tensor, n.step), i = f("dl", {});
		for (let [e, t] of r) i.append(f("dt", {}, e), f("dd", {}, t));
		a.push(f("h3", {}, e), i);
	}
	e.replaceChildren(...a);
}
// ../page/src/engine/types.ts
var x = [
	"weight",
	"frozen",
	"optimizer",
	"gradient",
	"activation",
	"workspace",
	"input"
], S = class {
	#e;
	#t;
	#n = null;
	constructor(e, t) {
		this.#e = e, this.#t = t;
	}
	show({ by_class: e }) {
		let t = x.filter((t) => (e[t] ?? 0) > 0);
		this.#e.replaceChildren(...t.map((t) => this.#r(t, e[t])));
	}
	#r(e, t) {
		let n = m("", () => this.#i(e), "");
		return n.dataset.class = e, n.setAttribute("aria-pressed", String(this.#n === e)), n.append(f("i", { class: `swatch-${e}` }), e, f("b", {}, o(t))), n;
	}
	#i(e) {
		this.#n = this.#n === e ? null : e, this.#t(this.#n);
		for (let e of this.#e.querySelectorAll("button")) e.setAttribute("aria-pressed", String(e.dataset.class === this.#n));
	}
};
// ../page/src/arena/geometry.ts
function C(e, t) {
	return e.left + t / Math.max(1, e.steps) * e.width;
}
function w(e, t) {
	return e.top + e.height * (1 - t / Math.max(1, e.bytes));
}
function T(e, t) {
	return [e.birth, Math.min(t, e.death + 1)];
}
function E(e, t) {
	let [n, r] = T(t, e.steps), i = C(e, n), a = w(e, t.offset + t.bytes);
	return {
		x: i,
		y: a,
		width: C(e, r) - i,
		height: w(e, t.offset) - a
	};
}
function D(e, t) {
	let n = Math.round(e.x * t), r = Math.round(e.y * t), i = Math.round((e.x + e.width) * t), a = Math.round((e.y + e.height) * t);
	return {
		x: n,
		y: r,
		width: Math.max(1, i - n),
		height: Math.max(1, a - r)
	};
}
function O(e, t, n) {
	let r = (t - e.left) / e.width, i = 1 - (n - e.top) / e.height;
	return r < 0 || r >= 1 || i < 0 || i >= 1 ? null : {
		step: Math.floor(r * e.steps),
		offset: Math.floor(i * e.bytes)
	};
}
function k(e, t) {
	return e.birth <= t && t <= e.death;
}
function ee(e, t, n) {
	let r = null, i = -Infinity;
	return e.forEach((e, a) => {
		let o = e.kept ? -1 : e.birth;
		e.offset <= n && n < e.offset + e.bytes && k(e, t) && o > i && (r = a, i = o);
	}), r;
}
function A(e, t) {
	return e.map((e, t) => t).filter((n) => k(e[n], t)).sort((t, n) => e[t].offset - e[n].offset);
}
function j(e) {
	let t = 0;
	return e.forEach(({ live: n }, r) => {
		n > (e[t]?.live ?? 0) && (t = r);
	}), t;
}
function te(e) {
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
function ne(e) {
	let t = [];
	for (let { phase: n, from: r, to: i } of te(e)) {
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
var re = 1024, ie = [
	1,
	2,
	5,
	10,
	20,
	50,
	100,
	200,
	500
], ae = [
	.1,
	.2,
	.25,
	.5
];
function M(e, t) {
	if (e <= 0) return [0];
	let n = re ** Math.floor(Math.log(e) / Math.log(re)), r = ((n === 1 ? ie : [...ae, ...ie]).find((r) => e / (r * n) <= t) ?? re) * n;
	return Array.from({ length: Math.floor(e / r) + 1 }, (e, t) => t * r);
}
// ../page/src/arena/paint.ts
var N = {
	left: 64,
	right: 12,
	top: 20,
	bottom: 34
}, P = 5, F = 4, I = 4, L = .13, oe = 15;
function se(e) {
	let t = getComputedStyle(e), n = (e) => t.getPropertyValue(`--${e}`).trim();
	return {
		ink: n("ink"),
		muted: n("muted"),
		rule: n("rule"),
		surface: n("surface"),
		accent: n("accent"),
		font: `11px ${n("mono")}`,
		classes: Object.fromEntries(x.map((e) => [e, n(`class-${e}`)]))
	};
}
function ce(e, t, n, r) {
	return {
		left: N.left,
		top: N.top,
		width: Math.max(1, e - N.left - N.right),
		height: Math.max(1, t - N.top - N.bottom),
		steps: n,
		bytes: r
	};
}
function le(e, t, n, r) {
	let { width: i, height: a } = e.canvas;
	e.setTransform(1, 0, 0, 1, 0, 0), e.clearRect(0, 0, i, a), ue(e, t.frame, n, r), de(e, t, n, r), e.setTransform(r, 0, 0, r, 0, 0), pe(e, t, n), me(e, t, n, r);
}
function ue(e, t, n, r) {
	e.setTransform(r, 0, 0, r, 0, 0), e.font = n.font, e.textAlign = "right", e.textBaseline = "middle";
	for (let i of M(t.bytes, P)) {
		let a = ye(w(t, i), r);
		e.strokeStyle = n.rule, e.lineWidth = 1 / r, be(e, t.left, a, t.left + t.width, a), e.fillStyle = n.muted, e.fillText(s(i), t.left - 8, a);
	}
}
function de(e, t, n, r) {
	e.setTransform(1, 0, 0, 1, 0, 0);
	for (let i of t.planned.program.tensors) {
		let a = D(E(t.frame, i), r);
		e.globalAlpha = t.highlight !== null && i.class !== t.highlight ? L : 1, e.fillStyle = n.classes[i.class], e.fillRect(a.x, a.y, fe(a.width), fe(a.height));
	}
	e.globalAlpha = 1;
}
function fe(e) {
	return e >= I ? e - 1 : e;
}
function pe(e, { planned: t, frame: n }, r) {
	let i = n.top + n.height + 6, a = {
		forward: .25,
		backward: .5,
		recompute: .8,
		update: 1
	};
	e.textAlign = "left", e.textBaseline = "top";
	for (let { phase: o, from: s, to: c } of te(t.program.ops)) {
		let t = C(n, s);
		e.globalAlpha = a[o], e.fillStyle = r.muted, e.fillRect(t, i, Math.max(C(n, c) - t - 1, .5), F);
	}
	e.globalAlpha = 1;
	for (let { label: r, from: a, to: o } of ne(t.program.ops)) {
		let t = C(n, a);
		C(n, o) - t >= e.measureText(r).width + 8 && e.fillText(r, t, i + F + 6);
	}
}
function me(e, t, n, r) {
	let { frame: i, planned: a } = t, s = t.budget !== null && t.budget <= i.bytes ? t.budget : null, c = i.left + i.width, l = (e) => ye(w(i, e), r), [u, d] = [l(a.peak_bytes), l(a.lower_bound_bytes)], f = a.peak_bytes - a.lower_bound_bytes;
	e.lineWidth = 1, e.strokeStyle = n.ink, be(e, i.left, u, c, u), f > 0 && (e.setLineDash([2, 3]), be(e, i.left, d, c, d), e.setLineDash([])), s !== null && (e.strokeStyle = n.accent, e.lineWidth = 1.5, be(e, i.left, l(s), c, l(s)));
	let p = Math.abs(u - d) < oe, m = `peak ${o(a.peak_bytes)}`;
	f === 0 ? he(e, `${m} = lower bound`, c, u, n.ink, n) : p ? he(e, `${m}, lower bound ${o(f)} less`, c, u, n.ink, n) : (he(e, m, c, u, n.ink, n), he(e, `lower bound ${o(a.lower_bound_bytes)}`, c, d, n.ink, n)), s !== null && (Math.abs(l(s) - u) >= oe || i.width > 420) && he(e, `budget ${o(s)}`, i.left, l(s), n.accent, n);
}
function he(e, t, n, r, i, a) {
	let o = i === a.accent, s = e.measureText(t).width + 8, c = o ? n : n - s;
	e.fillStyle = a.surface, e.globalAlpha = .86, e.fillRect(c, r - oe - 1, s, oe), e.globalAlpha = 1, e.fillStyle = i, e.textAlign = "left", e.textBaseline = "middle", e.fillText(t, c + 4, r - oe / 2 - .5);
}
function ge(e, t, n, r, i) {
	if (e.setTransform(1, 0, 0, 1, 0, 0), e.clearRect(0, 0, e.canvas.width, e.canvas.height), i === null) return;
	let { frame: a, planned: o } = t;
	e.setTransform(r, 0, 0, r, 0, 0);
	let s = ye(C(a, i.step + .5), r);
	e.strokeStyle = n.ink, e.lineWidth = 1 / r, be(e, s, a.top, s, a.top + a.height + 6 + F);
	let c = i.tensor === null ? void 0 : o.program.tensors[i.tensor];
	c !== void 0 && _e(e, c, a, n, i.step);
}
function _e(e, t, n, r, i) {
	let a = E(n, t);
	ve(e, a, r);
	let o = t.read_by.find((e) => e >= i);
	e.fillStyle = r.ink;
	for (let r of t.read_by) {
		let t = C(n, r + .5), i = r === o ? 5 : 2.5;
		e.beginPath(), e.moveTo(t - i, a.y + a.height + i * 1.6), e.lineTo(t + i, a.y + a.height + i * 1.6), e.lineTo(t, a.y + a.height), e.fill();
	}
}
function ve(e, t, n) {
	e.strokeStyle = n.surface, e.lineWidth = 4, e.strokeRect(t.x, t.y, t.width, t.height), e.strokeStyle = n.ink, e.lineWidth = 2, e.strokeRect(t.x, t.y, t.width, t.height);
}
function ye(e, t) {
	return (Math.round(e * t) + .5) / t;
}
function be(e, t, n, r, i) {
	e.beginPath(), e.moveTo(t, n), e.lineTo(r, i), e.stroke();
}
// ../page/src/arena/map.ts
var xe = 1.07, R = class {
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
	constructor(e, t) {
		this.#e = e, this.#r = t, this.#t = document.createElement("canvas"), this.#n = document.createElement("canvas");
		for (let e of [this.#t, this.#n]) e.setAttribute("aria-hidden", "true");
		e.append(this.#t, this.#n), this.#i = se(e);
		let { signal: n } = this.#d, r = new ResizeObserver(() => this.#f());
		r.observe(e);
		let i = new IntersectionObserver(() => this.#f());
		i.observe(e), n.addEventListener("abort", () => {
			r.disconnect(), i.disconnect();
		}), matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.restyle(), { signal: n }), document.fonts.ready.then(() => this.#f()), e.addEventListener("pointermove", (e) => this.#g(e), { signal: n }), e.addEventListener("pointerdown", (e) => this.#g(e), { signal: n }), e.addEventListener("pointerleave", () => {
			e.matches(":focus") || this.#h(null);
		}, { signal: n }), e.addEventListener("keydown", (e) => this.#v(e), { signal: n }), e.addEventListener("focus", () => {
			this.#l === null && e.matches(":focus-visible") && this.#_();
		}, { signal: n }), e.addEventListener("blur", () => this.#h(null), { signal: n });
	}
	restyle() {
		this.#i = se(this.#e), this.#f();
	}
	dispose() {
		cancelAnimationFrame(this.#u), this.#d.abort();
	}
	show(e, t, n) {
		this.#a = e, this.#o = t, this.#s = Math.max(n, e.peak_bytes), this.#l = null, this.#r(null), this.#f();
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
			t !== null && n !== null && le(n, t, this.#i, e), this.#p();
		});
	}
	#p() {
		let e = this.#m(), t = this.#n.getContext("2d");
		e !== null && t !== null && ge(t, e, this.#i, window.devicePixelRatio || 1, this.#l);
	}
	#m() {
		let e = this.#a;
		if (e === null) return null;
		let { clientWidth: t, clientHeight: n } = this.#e;
		return {
			planned: e,
			frame: ce(t, n, e.program.ops.length, this.#s * xe),
			budget: this.#o,
			highlight: this.#c
		};
	}
	#h(e) {
		(e?.step !== this.#l?.step || e?.tensor !== this.#l?.tensor) && (this.#l = e, this.#p(), this.#r(e));
	}
	#g(e) {
		let t = this.#m();
		if (t === null) return;
		let n = O(t.frame, e.offsetX, e.offsetY);
		if (n === null) {
			this.#h(null);
			return;
		}
		let { step: r, offset: i } = n;
		this.#h({
			step: r,
			tensor: ee(t.planned.program.tensors, r, i)
		});
	}
	#_() {
		let e = this.#a;
		if (e === null) return;
		let t = j(e.program.ops), n = A(e.program.tensors, t), r = n.filter((t) => e.program.tensors[t]?.kept === !1), i = (t) => t.reduce((t, n) => {
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
			step: j(t.program.ops),
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
			let e = A(t.program.tensors, r.step), n = r.tensor === null ? 0 : e.indexOf(r.tensor) + o, i = e[Math.min(e.length - 1, Math.max(0, n))] ?? null;
			this.#h({
				step: r.step,
				tensor: i
			});
		} else return;
		e.preventDefault();
	}
	#y(e, t, n) {
		if (n === null) return null;
		let r = e.program.tensors[n]?.offset ?? 0, i = A(e.program.tensors, t);
		return i.includes(n) ? n : ee(e.program.tensors, t, r) ?? i.at(-1) ?? null;
	}
}, z = [
	["Batch", ({ batch: e }) => Se(e)],
	["Micro-batch", ({ micro_batch: e, accumulation: t }) => `${e} × ${t}`],
	["Recomputed", ({ checkpoint: e }) => Se(e)],
	["Loss", ({ loss_chunk: e }) => e === 0 ? "in one piece" : `in chunks of ${e}`],
	["Precision", ({ precision: e }) => Se(e)],
	["Optimizer state", ({ optimizer_bits: e }) => Se(e, " bits")],
	["Offloaded", ({ offload: e }) => Ce(e)],
	["Gradients", ({ consume_gradients: e }) => e === !0 ? "consumed as they are made" : "kept for the update"],
	["LoRA rank", ({ lora: e }) => Se(e?.rank)],
	["Frozen", ({ freeze: e }) => Ce(e)]
];
function Se(e, t = "") {
	return e == null ? void 0 : `${e}${t}`;
}
function Ce(e) {
	return Array.isArray(e) && e.length > 0 ? e.join(", ") : "nothing";
}
function we(e, t) {
	let n = (e, t) => e.by_class[t] ?? 0, r = x.filter((r) => n(e, r) > 0 || n(t, r) > 0), i = z.map(([n, r]) => {
		let i = ({ choices: e }) => r(e) ?? "–";
		return {
			name: n,
			first: i(e),
			second: i(t)
		};
	});
	return {
		peak: Te(e.peak_bytes, t.peak_bytes),
		step: Te(e.step_s, t.step_s),
		classes: r.map((r) => ({
			name: r,
			...Te(n(e, r), n(t, r))
		})),
		choices: i.filter((e) => e.first !== e.second)
	};
}
function Te(e, t) {
	let n = t - e;
	return {
		first: e,
		second: t,
		change: n,
		share: e === 0 ? null : n / e
	};
}
function Ee({ change: e, share: t }) {
	return ke(Ae(e, o), t);
}
function De({ change: e, share: t }) {
	return ke(Ae(e, u), t);
}
var Oe = .001;
function ke(e, t) {
	return t === null || Math.abs(t) < Oe ? e : `${e} (${Ae(t, d)})`;
}
function Ae(e, t) {
	return e === 0 ? "no change" : (e > 0 ? "+" : "−") + t(Math.abs(e));
}
function je({ peak: e, step: t }) {
	let n = e.change === 0 ? "as large" : `${o(Math.abs(e.change))} ${e.change < 0 ? "smaller" : "larger"}`, r = Math.abs(t.share ?? 0);
	return `The second plan is ${n} and ${t.change === 0 ? "as fast" : `${d(r)} ${t.change < 0 ? "faster" : "slower"}`}.`;
}
// ../page/src/compare/table.ts
function Me(e, t, n) {
	let { peak: r, step: i, classes: a, choices: s } = we(e, t), c = [
		Ne(["Peak"], o(r.first), o(r.second), Ee(r)),
		...a.map((e) => Ne([f("i", { class: `swatch-${e.name}` }), e.name], o(e.first), o(e.second), Ee(e))),
		Ne(["Predicted step"], u(i.first), u(i.second), De(i)),
		...s.map((e) => {
			let t = Ne([e.name], e.first, e.second, "");
			return t.className = "choice", t;
		})
	], l = [
		"At the peak",
		...n,
		"Change"
	].map((e) => f("th", { scope: "col" }, e));
	return f("table", {}, f("caption", { class: "unseen" }, "What differs between the two plans"), f("thead", {}, f("tr", {}, ...l)), f("tbody", {}, ...c));
}
function Ne(e, ...t) {
	let n = t.map((e) => f("td", {}, e));
	return f("tr", {}, f("th", { scope: "row" }, ...e), ...n);
}
// src/columns.ts
function Pe({ buffer: e, byteOffset: t, byteLength: n }) {
	return e.slice(t, t + n);
}
var Fe = (e) => new Float64Array(Pe(e)), Ie = (e) => new Uint32Array(Pe(e)), B = (e, t) => e[t] ?? 0;
function Le({ words: e, at: t }) {
	return [...Ie(t)].map((t) => e[t] ?? "");
}
function Re({ figures: e, ops: t, tensors: n }) {
	return {
		...e,
		program: {
			name: "step",
			ops: ze(t),
			tensors: Be(n)
		}
	};
}
function ze(e) {
	let [t, n] = [Le(e.op), Le(e.phase)], [r, i] = [Fe(e.seconds), Fe(e.live)];
	return e.name.map((e, a) => ({
		op: t[a] ?? "",
		name: e,
		phase: n[a],
		seconds: B(r, a),
		live: B(i, a)
	}));
}
function Be(e) {
	let [t, n] = [Le(e.type), Le(e.class)], [r, i, a] = [
		Fe(e.offset),
		Fe(e.bytes),
		Fe(e.again_s)
	], [o, s, c] = [
		Ie(e.birth),
		Ie(e.death),
		Ie(e.kept)
	], [l, u] = [Ie(e.readers), Ie(e.read_by)], d = 0;
	return e.name.map((e, f) => {
		let p = d + B(l, f), m = {
			name: e,
			type: t[f] ?? "",
			class: n[f],
			offset: B(r, f),
			bytes: B(i, f),
			birth: B(o, f),
			death: B(s, f),
			kept: B(c, f) === 1,
			read_by: [...u.subarray(d, p)],
			again_s: Number.isNaN(a[f]) ? null : B(a, f)
		};
		return d = p, m;
	});
}
// src/elements.ts
var Ve = "Left and right arrow keys change the step, up and down the tensor.";
function He(e, t = "Tensors of one training step") {
	return f("div", {
		class: "arena",
		tabindex: 0,
		role: "application",
		"aria-roledescription": "map of the arena",
		"aria-label": `${t}: time to the right, offsets upwards. ${Ve}`,
		"aria-describedby": e
	});
}
function Ue(e, t, n = "") {
	let r = f("dd", { "data-figure": e }, t);
	return n !== "" && r.append(f("small", {}, n)), f("div", {}, f("dt", {}, e), r);
}
// src/compare-view.ts
var We = class {
	#e = f("div", {
		class: "detail",
		id: "detail",
		"aria-live": "polite"
	});
	#t = [];
	constructor(e, t) {
		let n = e.get("names"), r = [Re(e.get("first")), Re(e.get("second"))], i = Math.max(...r.map((e) => e.peak_bytes));
		t.append(f("div", { class: "head" }, f("h2", {}, "Two plans of a training step")), f("p", { class: "why" }, je(we(...r))), f("div", { class: "pair" }, ...r.map((e, t) => this.#n(e, n[t] ?? "", i))), f("div", { class: "arena-row" }, f("div", { class: "difference" }, Me(...r, n)), this.#e)), b(this.#e, null, null);
	}
	restyle() {
		for (let e of this.#t) e.restyle();
	}
	dispose() {
		for (let e of this.#t) e.dispose();
	}
	#n(e, t, n) {
		let r = He(this.#e.id, `Tensors of the plan “${t}”`), i = f("div", {
			class: "legend",
			role: "group",
			"aria-label": `Bytes at the peak of “${t}”`
		}), a = new R(r, (t) => b(this.#e, e, t));
		new S(i, (e) => a.highlight(e)).show(e), a.show(e, e.budget_bytes, n), this.#t.push(a);
		let s = `${o(e.peak_bytes)}, ${u(e.step_s)} a step`, c = f("div", { class: "head" }, f("h3", {}, t), f("p", { class: "unit" }, s));
		return f("section", { "aria-label": t }, c, r, i);
	}
}, Ge = [
	"Tensor",
	"Class",
	"Type",
	"Bytes",
	"Offset",
	"Made by",
	"Last read by"
], Ke = class {
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
		let { name: e, ops: t, tensors: n } = this.#n.program, r = j(t), i = A(n, r).map((e) => n[e]).sort((e, t) => t.bytes - e.bytes), a = (e) => e === void 0 ? "–" : `${e} ${t[e]?.op ?? ""}`, o = i.map((e) => f("tr", {}, f("td", {}, e.name), f("td", {}, e.class), f("td", {}, e.type), f("td", {}, c(e.bytes)), f("td", {}, c(e.offset)), f("td", {}, e.kept ? "kept" : a(e.birth)), f("td", {}, e.kept ? "kept" : a(e.read_by.at(-1))))), s = `step ${r} (${t[r]?.op ?? ""}) of program “${e}”`, l = `${i.length} tensors alive at ${s}`, u = Ge.map((e) => f("th", { scope: "col" }, e));
		this.#t.replaceChildren(f("table", {}, f("caption", {}, l), f("thead", {}, f("tr", {}, ...u)), f("tbody", {}, ...o)));
	}
};
// src/tables.ts
function qe(e) {
	let t = {
		class: "scroll",
		tabindex: 0,
		role: "region",
		"aria-label": e
	};
	return f("details", { class: "peak-table" }, f("summary", {}, e), f("div", t));
}
function Je(e, t) {
	let n = e.map((e) => f("th", { scope: "col" }, e)), r = t.map(([e = "", ...t]) => f("tr", {}, f("th", { scope: "row" }, e), ...t.map((e) => f("td", {}, e))));
	return f("table", { class: "numbers" }, f("thead", {}, f("tr", {}, ...n)), f("tbody", {}, ...r));
}
function Ye({ by_class: e, gap_bytes: t, peak_bytes: n }) {
	let r = (e, t) => [
		e,
		c(t),
		o(t),
		d(t / n)
	], i = x.filter((t) => (e[t] ?? 0) > 0).map((t) => r(f("span", {}, f("i", { class: `swatch-${t}` }), t), e[t]));
	return i.push(r(f("span", {}, "gaps and alignment"), t), r(f("span", {}, "peak"), n)), Je([
		"Class",
		"Bytes",
		"",
		"Of the peak"
	], i);
}
function Xe({ layers: e }) {
	return Je([
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
		].map(o), n = [
			e.forward_s,
			e.backward_s,
			e.recompute_s,
			e.update_s
		];
		return [
			Ze(e),
			...t,
			...n.map((e) => e > 0 ? u(e) : "–")
		];
	}));
}
function Ze({ blocks: e }) {
	if (e === null) return "outside of blocks";
	let [t, n] = e;
	return t === n ? `${t}` : `${t} to ${n}, each`;
}
// src/plan-view.ts
var Qe = 200, $e = 2e3, et = class {
	#e;
	#t = f("input", {
		type: "range",
		id: "budget",
		min: 0,
		max: Qe,
		step: 1
	});
	#n = f("output", { for: "budget" });
	#r = f("p", { class: "unit" });
	#i = f("p", { class: "why" });
	#a = f("div", {
		class: "refusal",
		role: "alert",
		hidden: !0
	});
	#o = f("dl", { class: "figures" });
	#s = f("div", {
		class: "detail",
		id: "detail",
		"aria-live": "polite"
	});
	#c = qe("Bytes at the peak by class");
	#l = qe("Bytes and predicted time by layer");
	#u = qe("Tensors alive at the peak");
	#d;
	#f;
	#p;
	#m = () => this.#S();
	#h = () => this.#x(this.#e.get("error"));
	#g;
	#_ = 0;
	constructor(e, t) {
		this.#e = e, this.#g = Re(e.get("plan"));
		let n = He("detail"), r = f("div", {
			class: "legend",
			role: "group",
			"aria-label": "Bytes at the peak, by class"
		});
		t.append(f("div", { class: "head" }, f("h2", {}, "Memory of a training step"), this.#r), f("div", { class: "budget" }, f("label", { for: "budget" }, "Budget"), this.#t, this.#n), this.#a, this.#o, this.#i, f("div", { class: "arena-row" }, f("div", {}, n, r), this.#s), f("div", { class: "tables" }, this.#c, this.#l, this.#u)), this.#d = new R(n, (e) => b(this.#s, this.#g, e)), this.#f = new S(r, (e) => this.#d.highlight(e)), this.#p = new Ke(this.#u), this.#t.addEventListener("input", () => this.#y()), e.on("change:plan", this.#m), e.on("change:error", this.#h), this.#v(), this.#S();
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
		let i = n > 0 ? (r - e) / n * Qe : Qe;
		this.#t.value = String(Math.min(Qe, Math.max(0, Math.round(i)))), this.#b(Math.min(r, Math.max(t, this.#g.peak_bytes)));
	}
	#y() {
		let [e, t] = this.#e.get("range"), n = Math.round(e + (t - e) * Number(this.#t.value) / Qe);
		this.#b(n), this.#e.set("budget", n), this.#e.save_changes(), clearTimeout(this.#_), this.#_ = window.setTimeout(() => {
			this.#x("The kernel doesn’t answer: it’s at work or gone. The map still shows the plan before.");
		}, $e);
	}
	#b(e) {
		p(this.#n, o(e)), this.#t.setAttribute("aria-valuetext", o(e));
	}
	#x(e) {
		clearTimeout(this.#_), this.#a.hidden = e === "", this.#a.replaceChildren(f("p", {}, e));
	}
	#S() {
		let e = Re(this.#e.get("plan"));
		this.#g = e, this.#x(this.#e.get("error"));
		let t = u(e.plan_ms / 1e3), { ops: n, tensors: r } = e.program, i = `${l(e.parameters)} parameters · ${n.length} ops · ${r.length} tensors`;
		p(this.#r, `${i} · planned in ${t}`), p(this.#i, [e.why === "" ? "" : `The peak is ${e.why}.`, rt(e)].join(" ")), this.#d.show(e, e.budget_bytes, Math.max(this.#e.get("range")[1], e.peak_bytes)), this.#f.show(e), this.#p.show(e), this.#c.querySelector(".scroll")?.replaceChildren(Ye(e)), this.#l.querySelector(".scroll")?.replaceChildren(Xe(e)), this.#o.replaceChildren(...tt(e));
	}
};
function tt(e) {
	let { choices: t } = e, { ops: n } = e.program, r = n.filter(({ phase: e }) => e === "recompute").length;
	return [
		Ue("Predicted peak", o(e.peak_bytes), `${c(e.peak_bytes)} B`),
		Ue("Lower bound", o(e.lower_bound_bytes), `${c(e.lower_bound_bytes)} B`),
		Ue("Predicted step", u(e.step_s)),
		Ue("Micro-batch", `${t.micro_batch} × ${t.accumulation}`, t.accumulation > 1 ? `the map shows one of ${t.accumulation} passes` : "in one pass"),
		Ue("Recomputed", nt(t.checkpoint) ? `${r} of ${n.length} ops` : t.checkpoint, t.loss_chunk === 0 ? "loss in one piece" : `loss in chunks of ${t.loss_chunk}`)
	];
}
var nt = (e) => e.includes("×");
function rt({ choices: { checkpoint: e } }) {
	return nt(e) ? `The backward pass computes again: ${e}.` : "";
}
// ../page/node_modules/uplot/dist/uPlot.esm.js
var it = !0, at = "uplot", ot = "u-hz", st = "u-vt", ct = "u-title", lt = "u-wrap", ut = "u-under", dt = "u-over", ft = "u-axis", pt = "u-off", mt = "u-select", ht = "u-cursor-x", gt = "u-cursor-y", _t = "u-cursor-pt", vt = "u-legend", yt = "u-live", bt = "u-inline", xt = "u-series", St = "u-marker", Ct = "u-label", wt = "u-value", Tt = "width", Et = "height", Dt = "top", Ot = "bottom", kt = "left", At = "right", jt = "#000", Mt = "#0000", Nt = "mousemove", Pt = "mousedown", Ft = "mouseup", It = "mouseenter", Lt = "mouseleave", Rt = "dblclick", zt = "resize", Bt = "scroll", Vt = "change", Ht = "dppxchange", Ut = "--", Wt = typeof window < "u", Gt = Wt ? document : null, Kt = Wt ? window : null, qt = Wt ? navigator : null, V, Jt;
function Yt() {
	let e = devicePixelRatio;
	V != e && (V = e, Jt && un(Vt, Jt, Yt), Jt = matchMedia(`(min-resolution: ${V - .001}dppx) and (max-resolution: ${V + .001}dppx)`), ln(Vt, Jt, Yt), Kt.dispatchEvent(new CustomEvent(Ht)));
}
function Xt(e, t) {
	if (t != null) {
		let n = e.classList;
		!n.contains(t) && n.add(t);
	}
}
function Zt(e, t) {
	let n = e.classList;
	n.contains(t) && n.remove(t);
}
function H(e, t, n) {
	e.style[t] = n + "px";
}
function Qt(e, t, n, r) {
	let i = Gt.createElement(e);
	return t != null && Xt(i, t), n?.insertBefore(i, r), i;
}
function $t(e, t) {
	return Qt("div", e, t);
}
var en = /* @__PURE__ */ new WeakMap();
function tn(e, t, n, r, i) {
	let a = "translate(" + t + "px," + n + "px)";
	a != en.get(e) && (e.style.transform = a, en.set(e, a), t < 0 || n < 0 || t > r || n > i ? Xt(e, pt) : Zt(e, pt));
}
var nn = /* @__PURE__ */ new WeakMap();
function rn(e, t, n) {
	let r = t + n;
	r != nn.get(e) && (nn.set(e, r), e.style.background = t, e.style.borderColor = n);
}
var an = /* @__PURE__ */ new WeakMap();
function on(e, t, n, r) {
	let i = t + "" + n;
	i != an.get(e) && (an.set(e, i), e.style.height = n + "px", e.style.width = t + "px", e.style.marginLeft = r ? -t / 2 + "px" : 0, e.style.marginTop = r ? -n / 2 + "px" : 0);
}
var sn = { passive: !0 }, cn = {
	...sn,
	capture: !0
};
function ln(e, t, n, r) {
	t.addEventListener(e, n, r ? cn : sn);
}
function un(e, t, n, r) {
	t.removeEventListener(e, n, sn);
}
Wt && Yt();
function dn(e, t, n, r) {
	let i;
	n ||= 0, r ||= t.length - 1;
	let a = r <= 2147483647;
	for (; r - n > 1;) i = a ? n + r >> 1 : Mn((n + r) / 2), t[i] < e ? n = i : r = i;
	return e - t[n] <= t[r] - e ? n : r;
}
function fn(e) {
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
var pn = (e) => e != null, mn = (e) => e != null && e > 0, hn = fn(pn), gn = fn(mn);
function _n(e, t, n, r = 0, i = !1) {
	let a = i ? gn : hn, o = i ? mn : pn;
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
	return [s ?? W, c ?? -W];
}
function vn(e, t, n, r) {
	let i = Rn(e), a = Rn(t);
	e == t && (i == -1 ? (e *= n, t /= n) : (e /= n, t *= n));
	let o = n == 10 ? zn : Bn, s = i == 1 ? Mn : Pn, c = a == 1 ? Pn : Mn, l = s(o(jn(e))), u = c(o(jn(t))), d = Ln(n, l), f = Ln(n, u);
	return n == 10 && (l < 0 && (d = K(d, -l)), u < 0 && (f = K(f, -u))), r || n == 2 ? (e = d * i, t = f * a) : (e = nr(e, d), t = tr(t, f)), [e, t];
}
function yn(e, t, n, r) {
	let i = vn(e, t, n, r);
	return e == 0 && (i[0] = 0), t == 0 && (i[1] = 0), i;
}
var bn = .1, xn = {
	mode: 3,
	pad: bn
}, Sn = {
	pad: 0,
	soft: null,
	mode: 0
}, Cn = {
	min: Sn,
	max: Sn
};
function wn(e, t, n, r) {
	return pr(n) ? En(e, t, n) : (Sn.pad = n, Sn.soft = r ? 0 : null, Sn.mode = r ? 3 : 0, En(e, t, Cn));
}
function U(e, t) {
	return e ?? t;
}
function Tn(e, t, n) {
	for (t = U(t, 0), n = U(n, e.length - 1); t <= n;) {
		if (e[t] != null) return !0;
		t++;
	}
	return !1;
}
function En(e, t, n) {
	let r = n.min, i = n.max, a = U(r.pad, 0), o = U(i.pad, 0), s = U(r.hard, -W), c = U(i.hard, W), l = U(r.soft, W), u = U(i.soft, -W), d = U(r.mode, 0), f = U(i.mode, 0), p = t - e, m = zn(p), h = In(jn(e), jn(t)), g = jn(zn(h) - m);
	(p < 1e-24 || g > 10) && (p = 0, (e == 0 || t == 0) && (p = 1e-24, d == 2 && l != W && (a = 0), f == 2 && u != -W && (o = 0)));
	let _ = p || h || 1e3, v = Ln(10, Mn(zn(_))), y = K(nr(e - _ * (p == 0 ? e == 0 ? .1 : 1 : a), v / 10), 24), b = e >= l && (d == 1 || d == 3 && y <= l || d == 2 && y >= l) ? l : W, x = In(s, y < b && e >= b ? b : Fn(b, y)), S = K(tr(t + _ * (p == 0 ? t == 0 ? .1 : 1 : o), v / 10), 24), C = t <= u && (f == 1 || f == 3 && S >= u || f == 2 && S <= u) ? u : -W, w = Fn(c, S > C && t <= C ? C : In(C, S));
	return x == w && x == 0 && (w = 100), [x, w];
}
var Dn = new Intl.NumberFormat(Wt ? qt.language : "en-US"), On = (e) => Dn.format(e), kn = Math, An = kn.PI, jn = kn.abs, Mn = kn.floor, Nn = kn.round, Pn = kn.ceil, Fn = kn.min, In = kn.max, Ln = kn.pow, Rn = kn.sign, zn = kn.log10, Bn = kn.log2, Vn = (e, t = 1) => kn.sinh(e) * t, Hn = (e, t = 1) => kn.asinh(e / t), W = Infinity;
function Un(e) {
	return (zn((e ^ e >> 31) - (e >> 31)) | 0) + 1;
}
function Wn(e, t, n) {
	return Fn(In(e, t), n);
}
function Gn(e) {
	return typeof e == "function";
}
function G(e) {
	return Gn(e) ? e : () => e;
}
var Kn = () => {}, qn = (e) => e, Jn = (e, t) => t, Yn = (e) => null, Xn = (e) => !0, Zn = (e, t) => e == t, Qn = /\.\d*?(?=9{6,}|0{6,})/gm, $n = (e) => {
	if (ur(e) || rr.has(e)) return e;
	let t = `${e}`, n = t.match(Qn);
	if (n == null) return e;
	let r = n[0].length - 1;
	if (t.indexOf("e-") != -1) {
		let [e, n] = t.split("e");
		return +`${$n(e)}e${n}`;
	}
	return K(e, r);
};
function er(e, t) {
	return $n(K($n(e / t)) * t);
}
function tr(e, t) {
	return $n(Pn($n(e / t)) * t);
}
function nr(e, t) {
	return $n(Mn($n(e / t)) * t);
}
function K(e, t = 0) {
	if (ur(e)) return e;
	let n = 10 ** t;
	return Nn(e * n * (1 + 2 ** -52)) / n;
}
var rr = /* @__PURE__ */ new Map();
function ir(e) {
	return (("" + e).split(".")[1] || "").length;
}
function ar(e, t, n, r) {
	let i = [], a = r.map(ir);
	for (let o = t; o < n; o++) {
		let t = jn(o), n = K(Ln(e, o), t);
		for (let s = 0; s < r.length; s++) {
			let c = e == 10 ? +`${r[s]}e${o}` : r[s] * n, l = (o >= 0 ? 0 : t) + (o >= a[s] ? 0 : a[s]), u = e == 10 ? c : K(c, l);
			i.push(u), rr.set(u, l);
		}
	}
	return i;
}
var or = {}, sr = [], cr = [null, null], lr = Array.isArray, ur = Number.isInteger, dr = (e) => e === void 0;
function fr(e) {
	return typeof e == "string";
}
function pr(e) {
	let t = !1;
	if (e != null) {
		let n = e.constructor;
		t = n == null || n == Object;
	}
	return t;
}
function mr(e) {
	return typeof e == "object" && !!e;
}
var hr = Object.getPrototypeOf(Uint8Array), gr = "__proto__";
function _r(e, t = pr) {
	let n;
	if (lr(e)) {
		let r = e.find((e) => e != null);
		if (lr(r) || t(r)) {
			n = Array(e.length);
			for (let r = 0; r < e.length; r++) n[r] = _r(e[r], t);
		} else n = e.slice();
	} else if (e instanceof hr) n = e.slice();
	else if (t(e)) {
		n = {};
		for (let r in e) r != gr && (n[r] = _r(e[r], t));
	} else n = e;
	return n;
}
function vr(e) {
	let t = arguments;
	for (let n = 1; n < t.length; n++) {
		let r = t[n];
		for (let t in r) t != gr && (pr(e[t]) ? vr(e[t], _r(r[t])) : e[t] = _r(r[t]));
	}
	return e;
}
var yr = 0, br = 1, xr = 2;
function Sr(e, t, n) {
	for (let r = 0, i, a = -1; r < t.length; r++) {
		let o = t[r];
		if (o > a) {
			for (i = o - 1; i >= 0 && e[i] == null;) e[i--] = null;
			for (i = o + 1; i < n && e[i] == null;) e[a = i++] = null;
		}
	}
}
function Cr(e, t) {
	if (Er(e)) {
		let t = e[0].slice();
		for (let n = 1; n < e.length; n++) t.push(...e[n].slice(1));
		return Dr(t[0]) || (t = Tr(t)), t;
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
			let c = o[e], l = Array(i).fill(void 0), u = t ? t[n][e] : br, d = [];
			for (let e = 0; e < c.length; e++) {
				let t = c[e], n = a.get(s[e]);
				t === null ? u != yr && (l[n] = t, u == xr && d.push(n)) : l[n] = t;
			}
			Sr(l, d, i), r.push(l);
		}
	}
	return r;
}
var wr = typeof queueMicrotask > "u" ? (e) => Promise.resolve().then(e) : queueMicrotask;
function Tr(e) {
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
function Er(e) {
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
function Dr(e, t = 100) {
	let n = e.length;
	if (n <= 1) return !0;
	let r = 0, i = n - 1;
	for (; r <= i && e[r] == null;) r++;
	for (; i >= r && e[i] == null;) i--;
	if (i <= r) return !0;
	let a = In(1, Mn((i - r + 1) / t));
	for (let t = e[r], n = r + a; n <= i; n += a) {
		let r = e[n];
		if (r != null) {
			if (r <= t) return !1;
			t = r;
		}
	}
	return !0;
}
var Or = [
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
], kr = [
	"Sunday",
	"Monday",
	"Tuesday",
	"Wednesday",
	"Thursday",
	"Friday",
	"Saturday"
];
function Ar(e) {
	return e.slice(0, 3);
}
var jr = kr.map(Ar), Mr = {
	MMMM: Or,
	MMM: Or.map(Ar),
	WWWW: kr,
	WWW: jr
};
function Nr(e) {
	return (e < 10 ? "0" : "") + e;
}
function Pr(e) {
	return (e < 10 ? "00" : e < 100 ? "0" : "") + e;
}
var Fr = {
	YYYY: (e) => e.getFullYear(),
	YY: (e) => (e.getFullYear() + "").slice(2),
	MMMM: (e, t) => t.MMMM[e.getMonth()],
	MMM: (e, t) => t.MMM[e.getMonth()],
	MM: (e) => Nr(e.getMonth() + 1),
	M: (e) => e.getMonth() + 1,
	DD: (e) => Nr(e.getDate()),
	D: (e) => e.getDate(),
	WWWW: (e, t) => t.WWWW[e.getDay()],
	WWW: (e, t) => t.WWW[e.getDay()],
	HH: (e) => Nr(e.getHours()),
	H: (e) => e.getHours(),
	h: (e) => {
		let t = e.getHours();
		return t == 0 ? 12 : t > 12 ? t - 12 : t;
	},
	AA: (e) => e.getHours() >= 12 ? "PM" : "AM",
	aa: (e) => e.getHours() >= 12 ? "pm" : "am",
	a: (e) => e.getHours() >= 12 ? "p" : "a",
	mm: (e) => Nr(e.getMinutes()),
	m: (e) => e.getMinutes(),
	ss: (e) => Nr(e.getSeconds()),
	s: (e) => e.getSeconds(),
	fff: (e) => Pr(e.getMilliseconds())
};
function Ir(e, t) {
	t ||= Mr;
	let n = [], r = /\{([a-z]+)\}|[^{]+/gi, i;
	for (; i = r.exec(e);) n.push(i[0][0] == "{" ? Fr[i[1]] : i[0]);
	return (e) => {
		let r = "";
		for (let i = 0; i < n.length; i++) r += typeof n[i] == "string" ? n[i] : n[i](e, t);
		return r;
	};
}
var Lr = new Intl.DateTimeFormat().resolvedOptions().timeZone;
function Rr(e, t) {
	let n;
	return t == "UTC" || t == "Etc/UTC" ? n = /* @__PURE__ */ new Date(+e + e.getTimezoneOffset() * 6e4) : t == Lr ? n = e : (n = new Date(e.toLocaleString("en-US", { timeZone: t })), n.setMilliseconds(e.getMilliseconds())), n;
}
var q = (e) => e % 1 == 0, J = [
	1,
	2,
	2.5,
	5
], zr = ar(10, -32, 0, J), Br = ar(10, 0, 32, J), Vr = Br.filter(q), Hr = zr.concat(Br), Y = "\n", Ur = "{YYYY}", X = Y + Ur, Wr = "{M}/{D}", Gr = Y + Wr, Kr = Gr + "/{YY}", qr = "{aa}", Jr = "{h}:{mm}" + qr, Yr = Y + Jr, Xr = ":{ss}", Z = null;
function Zr(e) {
	let t = e * 1e3, n = t * 60, r = n * 60, i = r * 24, a = i * 30, o = i * 365, s = (e == 1 ? ar(10, 0, 3, J).filter(q) : ar(10, -3, 0, J)).concat([
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
			Ur,
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
			let p = [], m = d >= o, h = d >= a && d < o, g = t(l), _ = K(g * e, 3), v = si(g.getFullYear(), m ? 0 : g.getMonth(), h || m ? 1 : g.getDate()), y = K(v * e, 3);
			if (h || m) {
				let n = h ? d / a : 0, r = m ? d / o : 0, i = _ == y ? _ : K(si(v.getFullYear() + r, v.getMonth() + n, 1) * e, 3), s = new Date(Nn(i / e)), c = s.getFullYear(), l = s.getMonth();
				for (let a = 0; i <= u; a++) {
					let o = si(c + r * a, l + n * a, 1), s = o - t(K(o * e, 3));
					i = K((+o + s) * e, 3), i <= u && p.push(i);
				}
			} else {
				let a = d >= i ? i : d, o = y + (Mn(l) - Mn(_)) + tr(_ - y, a);
				p.push(o);
				let m = t(o), h = m.getHours() + m.getMinutes() / n + m.getSeconds() / r, g = d / r, v = f / s.axes[c]._space;
				for (; o = K(o + d, e == 1 ? 0 : 3), !(o > u);) if (g > 1) {
					let e = Mn(K(h + g, 6)) % 24, n = t(o).getHours() - e;
					n > 1 && (n = -1), o -= n * r, h = (h + g) % 24;
					let i = p[p.length - 1];
					K((o - i) / d, 3) * v >= .7 && p.push(o);
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
ar(2, -53, 53, [1]);
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
	let n = Ir(t);
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
	return (n, r, i, a) => a == null ? Ut : t(e(r));
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
	mount: Kn,
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
	let n = e.cursor.points, r = $t(), i = n.size(e, t);
	H(r, Tt, i), H(r, Et, i);
	let a = i / -2;
	H(r, "marginLeft", a), H(r, "marginTop", a);
	let o = n.width(e, t, i);
	return o && H(r, "borderWidth", o), r;
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
}, wi = vr({}, Ci, { filter: Jn }), Ti = vr({}, wi, { size: 10 }), Ei = vr({}, Ci, { show: !1 }), Di = "12px system-ui, -apple-system, \"Segoe UI\", Roboto, \"Helvetica Neue\", Arial, \"Noto Sans\", sans-serif, \"Apple Color Emoji\", \"Segoe UI Emoji\", \"Segoe UI Symbol\", \"Noto Color Emoji\"", Oi = "bold " + Di, ki = 1.5, Ai = {
	show: !0,
	scale: "x",
	stroke: jt,
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
	min: W,
	max: -Infinity,
	idxs: []
};
function Pi(e, t, n, r, i) {
	return t.map((e) => e == null ? "" : On(e));
}
function Fi(e, t, n, r, i, a, o) {
	let s = [], c = rr.get(i) || 0;
	n = o ? n : K(tr(n, i), c);
	for (let e = n; e <= r; e = K(e + i, c)) s.push(Object.is(e, -0) ? 0 : e);
	return s;
}
function Ii(e, t, n, r, i, a, o) {
	let s = [], c = e.scales[e.axes[t].scale].log;
	i = Ln(c, Mn((c == 10 ? zn : Bn)(n))), c == 10 && (i = Hr[dn(i, Hr)]);
	let l = n, u = i * c;
	c == 10 && (u = Hr[dn(u, Hr)]);
	do
		s.push(l), l += i, c == 10 && !rr.has(l) && (l = K(l, rr.get(i))), l >= u && (i = l, u = i * c, c == 10 && (u = Hr[dn(u, Hr)]));
	while (l <= r);
	return s;
}
function Li(e, t, n, r, i, a, o) {
	let s = e.scales[e.axes[t].scale].asinh, c = r > s ? Ii(e, t, In(s, n), r, i) : [s], l = r >= 0 && n <= 0 ? [0] : [];
	return (n < -s ? Ii(e, t, In(s, -r), -n, i) : [s]).reverse().map((e) => -e).concat(l, c);
}
var Ri = /./, zi = /[12357]/, Bi = /[125]/, Vi = /1/, Hi = (e, t, n, r) => e.map((e, i) => t == 4 && e == 0 || i % r == 0 && n.test(e.toExponential()[+(e < 0)]) ? e : null);
function Ui(e, t, n, r, i) {
	let a = e.axes[n], o = a.scale, s = e.scales[o], c = e.valToPos, l = a._space, u = c(10, o), d = c(9, o) - u >= l ? Ri : c(7, o) - u >= l ? zi : c(5, o) - u >= l ? Bi : Vi;
	if (d == Vi) {
		let e = jn(c(1, o) - u);
		if (e < l) return Hi(t.slice().reverse(), s.distr, d, Pn(l / e)).reverse();
	}
	return Hi(t, s.distr, d, 1);
}
function Wi(e, t, n, r, i) {
	let a = e.axes[n], o = a.scale, s = a._space, c = e.valToPos, l = jn(c(1, o) - c(2, o));
	return l < s ? Hi(t.slice().reverse(), 3, Ri, Pn(s / l)).reverse() : t;
}
function Gi(e, t, n, r) {
	return r == null ? Ut : t == null ? "" : On(t);
}
var Ki = {
	show: !0,
	scale: "y",
	stroke: jt,
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
	return K((3 + (e || 1) * 2) * t, 3);
}
function Ji(e, t) {
	let { scale: n, idxs: r } = e.series[0], i = e._data[0], a = e.valToPos(i[r[0]], n, !0), o = jn(e.valToPos(i[r[1]], n, !0) - a) / (e.series[t].points.space * V);
	return r[1] - r[0] <= o;
}
var Yi = {
	scale: null,
	auto: !0,
	sorted: 0,
	min: W,
	max: -Infinity
}, Xi = (e, t, n, r, i) => i, Zi = {
	show: !0,
	auto: !0,
	sorted: 0,
	gaps: Xi,
	alpha: 1,
	facets: [vr({}, Yi, { scale: "x" }), vr({}, Yi, { scale: "y" })]
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
	min: W,
	max: -Infinity,
	idxs: [],
	path: null,
	clip: null
};
function $i(e, t, n, r, i) {
	return n / 10;
}
var ea = {
	time: it,
	auto: !0,
	distr: 1,
	log: 10,
	asinh: 1,
	min: null,
	max: null,
	dir: 1,
	ori: 0
}, ta = vr({}, ea, {
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
	let n = 0, r = 0, i = U(e.bands, sr);
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
	return e == 0 ? qn : e == 1 ? Nn : (t) => er(t, e);
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
		c == 0 && l == 0 ? r(e, i, a, o, s) : (c = Fn(c, o / 2, s / 2), l = Fn(l, o / 2, s / 2), t(e, i + c, a), n(e, i + o, a, i + o, a + s, c), n(e, i + o, a + s, i, a + s, l), n(e, i, a + s, i, a, l), n(e, i, a, i + o, a, c), e.closePath());
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
		let y = K(g.width * V, 3), b = (g.size - g.width) / 2 * V, x = K(b * 2, 3), S = new Path2D(), C = new Path2D(), { left: w, top: T, width: E, height: D } = e.bbox;
		_a(C, w - x, T - x, E + x * 2, D + x * 2);
		let O = (e) => {
			if (o[e] != null) {
				let t = h(l(a[e], s, p, d)), n = h(u(o[e], c, m, f));
				_(S, t + b, n), v(S, t, n, b, 0, An * 2);
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
	let t = U(e?.alignGaps, 0);
	return (e, n, r, i) => oa(e, n, (a, o, s, c, l, u, d, f, p, m, h) => {
		[r, i] = hn(s, r, i);
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
	let t = U(e.align, 1), n = U(e.ascDesc, !1), r = U(e.alignGaps, 0), i = U(e.extend, !1);
	return (e, a, o, s) => oa(e, a, (c, l, u, d, f, p, m, h, g, _, v) => {
		[o, s] = hn(u, o, s);
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
			let f = c.width * V / 2, p = n || t == 1 ? f : -f, m = n || t == -1 ? -f : f;
			i.forEach((e) => {
				e[0] += p, e[1] += m;
			}), T.gaps = i = c.gaps(e, a, o, s, i), T.clip = ua(i, d.ori, h, g, _, v);
		}
		return ne != 0 && (T.band = ne == 2 ? [la(e, a, o, s, E, -1), la(e, a, o, s, E, 1)] : la(e, a, o, s, E, ne)), T;
	});
}
function ka(e, t, n, r, i, a, o = W) {
	if (e.length > 1) {
		let s = null;
		for (let c = 0, l = Infinity; c < e.length; c++) if (t[c] !== void 0) {
			if (s != null) {
				let t = jn(e[c] - e[s]);
				t < l && (l = t, o = jn(n(e[c], r, i, a) - n(e[s], r, i, a)));
			}
			s = c;
		}
	}
	return o;
}
function Aa(e) {
	e ||= or;
	let t = U(e.size, [
		.6,
		W,
		1
	]), n = e.align || 0, r = e.gap || 0, i = e.radius;
	i = i == null ? [0, 0] : typeof i == "number" ? [i, 0] : i;
	let a = G(i), o = 1 - t[0], s = U(t[1], W), c = U(t[2], 1), l = U(e.disp, or), u = U(e.each, (e) => {}), { fill: d, stroke: f } = l;
	return (e, t, i, p) => oa(e, t, (m, h, g, _, v, y, b, x, S, C, w) => {
		let T = m.pxRound, E = n, D = r * V, O = s * V, k = c * V, ee, A;
		_.ori == 0 ? [ee, A] = a(e, t) : [A, ee] = a(e, t);
		let j = _.dir * (_.ori == 0 ? 1 : -1), te = _.ori == 0 ? _a : va, ne = _.ori == 0 ? u : (e, t, n, r, i, a, o) => {
			u(e, t, n, i, r, o, a);
		}, re = U(e.bands, sr).find((e) => e.series[0] == t), ie = re == null ? 0 : re.dir, ae = m.fillTo(e, t, m.min, m.max, ie), M = T(b(ae, v, w, S)), N, P, F, I = C, L = T(m.width * V), oe = !1, se = null, ce = null, le = null, ue = null;
		d != null && (L == 0 || f != null) && (oe = !0, se = d.values(e, t, i, p), ce = /* @__PURE__ */ new Map(), new Set(se).forEach((e) => {
			e != null && ce.set(e, new Path2D());
		}), L > 0 && (le = f.values(e, t, i, p), ue = /* @__PURE__ */ new Map(), new Set(le).forEach((e) => {
			e != null && ue.set(e, new Path2D());
		})));
		let { x0: de, size: fe } = l;
		if (de != null && fe != null) {
			E = 1, h = de.values(e, t, i, p), de.unit == 2 && (h = h.map((t) => e.posToVal(x + t * C, _.key, !0)));
			let n = fe.values(e, t, i, p);
			P = fe.unit == 2 ? n[0] * C : y(n[0], _, C, x) - y(0, _, C, x), I = ka(h, g, y, _, C, x, I), F = I - P + D;
		} else I = ka(h, g, y, _, C, x, I), F = I * o + D, P = I - F;
		F < 1 && (F = 0), L >= P / 2 && (L = 0), F < 5 && (T = qn);
		let pe = F > 0, me = I - F - (pe ? L : 0);
		P = T(Wn(me, k, O)), N = (E == 0 ? P / 2 : E == j ? 0 : P) - E * j * ((E == 0 ? D / 2 : 0) + (pe ? L / 2 : 0));
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
			let i = y(_.distr != 2 || l != null ? h[n] : n, _, C, x), a = b(U(r, ae), v, w, S), o = T(i - N), s = T(In(a, M)), c = T(Fn(a, M)), u = s - c;
			if (r != null) {
				let i = r < 0 ? ye : ve, a = r < 0 ? ve : ye;
				oe ? (L > 0 && le[n] != null && te(ue.get(le[n]), o, c + Mn(L / 2), P, In(0, u - L), i, a), se[n] != null && te(ce.get(se[n]), o, c + Mn(L / 2), P, In(0, u - L), i, a)) : te(ge, o, c + Mn(L / 2), P, In(0, u - L), i, a), ne(e, t, n, o - L / 2, c, P + L, u);
			}
		}
		return L > 0 ? he.stroke = oe ? ue : ge : oe || (he._fill = m.width == 0 ? m._fill : m._stroke ?? m._fill, he.width = 0), he.fill = oe ? ce : ge, he;
	});
}
function ja(e, t) {
	let n = U(t?.alignGaps, 0);
	return (t, r, i, a) => oa(t, r, (o, s, c, l, u, d, f, p, m, h, g) => {
		[i, a] = hn(c, i, a);
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
Wt && (ln(zt, Kt, Fa), ln(Bt, Kt, Fa, !0), ln(Ht, Kt, () => {
	Za.pxRatio = V;
}));
var Ia = Da(), La = Ca();
function Ra(e, t, n, r) {
	return (r ? [e[0], e[1]].concat(e.slice(2)) : [e[0]].concat(e.slice(1))).map((e, r) => Ba(e, r, t, n));
}
function za(e, t) {
	return e.map((e, n) => n == 0 ? {} : vr({}, t, e));
}
function Ba(e, t, n, r) {
	return vr({}, t == 0 ? n : r, e);
}
function Va(e, t, n) {
	return t == null ? cr : [t, n];
}
var Ha = Va;
function Ua(e, t, n) {
	return t == null ? cr : wn(t, n, bn, !0);
}
function Wa(e, t, n, r) {
	return t == null ? cr : vn(t, n, e.scales[r].log, !1);
}
var Ga = Wa;
function Ka(e, t, n, r) {
	return t == null ? cr : yn(t, n, e.scales[r].log, !1);
}
var qa = Ka;
function Ja(e, t, n, r, i) {
	let a = In(Un(e), Un(t)), o = t - e, s = dn(i / r * o, n);
	do {
		let e = n[s], t = r * e / o;
		if (t >= i && a + (e < 5 ? rr.get(e) : 0) <= 17) return [e, t];
	} while (++s < n.length);
	return [0, 0];
}
function Ya(e) {
	let t, n;
	return e = e.replace(/(\d+)px/, (e, r) => (t = Nn((n = +r) * V)) + "px"), [
		e,
		t,
		n
	];
}
function Xa(e) {
	e.show && [e.font, e.labelFont].forEach((e) => {
		let t = K(e[2] * V, 1);
		e[0] = e[0].replace(/[0-9.]+px/, t + "px"), e[1] = t;
	});
}
function Za(e, t, n) {
	let r = { mode: U(e.mode, 1) }, i = r.mode;
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
	let l = r.root = $t(at);
	if (e.id != null && (l.id = e.id), Xt(l, e.class), e.title) {
		let t = $t(ct, l);
		t.textContent = e.title;
	}
	let u = Qt("canvas"), d = r.ctx = u.getContext("2d"), f = $t(lt, l);
	ln("click", f, (e) => {
		e.target === m && (q != Pr || J != Fr) && Br.click(r, e);
	}, !0);
	let p = r.under = $t(ut, f);
	f.appendChild(u);
	let m = r.over = $t(dt, f);
	e = _r(e);
	let h = +U(e.pxAlign, 1), g = fa(h);
	(e.plugins || []).forEach((t) => {
		t.opts && (e = t.opts(r, e) || e);
	});
	let _ = e.ms || .001, v = r.series = i == 1 ? Ra(e.series || [], Ni, Qi, !1) : za(e.series || [null], Zi), y = r.axes = Ra(e.axes || [], Ai, Ki, !0), b = r.scales = {}, x = r.bands = e.bands || [];
	x.forEach((e) => {
		e.fill = G(e.fill || null), e.dir = U(e.dir, -1);
	});
	let S = i == 2 ? v[1].facets[0].scale : v[0].scale, C = {
		axes: hr,
		series: Rn
	}, w = (e.drawOrder || ["axes", "series"]).map((e) => C[e]);
	function T(e) {
		let t = e.distr == 3 ? (t) => zn(t > 0 ? t : e.clamp(r, t, e.min, e.max, e.key)) : e.distr == 4 ? (t) => Hn(t, e.asinh) : e.distr == 100 ? (t) => e.fwd(t) : (e) => e;
		return (n) => {
			let r = t(n), { _min: i, _max: a } = e, o = a - i;
			return (r - i) / o;
		};
	}
	function E(t) {
		let n = b[t];
		if (n == null) {
			let r = (e.scales || or)[t] || or;
			if (r.from != null) {
				E(r.from);
				let e = vr({}, b[r.from], r, { key: t });
				e.valToPct = T(e), b[t] = e;
			} else {
				n = b[t] = vr({}, t == S ? ea : ta, r), n.key = t;
				let e = n.time, a = n.range, o = lr(a);
				if ((t != S || i == 2 && !e) && (o && (a[0] == null || a[1] == null) && (a = {
					min: a[0] == null ? xn : {
						mode: 1,
						hard: a[0],
						soft: a[0]
					},
					max: a[1] == null ? xn : {
						mode: 1,
						hard: a[1],
						soft: a[1]
					}
				}, o = !1), !o && pr(a))) {
					let e = a;
					a = (t, n, r) => n == null ? cr : wn(n, r, e);
				}
				n.range = G(a || (e ? Ha : t == S ? n.distr == 3 ? Ga : n.distr == 4 ? qa : Va : n.distr == 3 ? Wa : n.distr == 4 ? Ka : Ua)), n.auto = G(!o && n.auto), n.clamp = G(n.clamp || $i), n._min = n._max = null, n.valToPct = T(n);
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
	D.ori == 0 ? (Xt(l, ot), k = a, ee = o) : (Xt(l, st), k = o, ee = a);
	let A = {};
	for (let e in b) {
		let t = b[e];
		(t.min != null || t.max != null) && (A[e] = {
			min: t.min,
			max: t.max
		}, t.min = t.max = null);
	}
	let j = e.tzDate || ((e) => new Date(Nn(e / _))), te = e.fmtDate || Ir, ne = _ == 1 ? ei(j) : ri(j), re = ai(j, ii(_ == 1 ? $r : ni, te)), ie = ui(j, ci(li, te)), ae = [], M = r.legend = vr({}, pi, e.legend), N = r.cursor = vr({}, Si, { drag: { y: i == 2 } }, e.cursor), P = M.show, F = N.show, I = M.markers;
	M.idxs = ae, I.width = G(I.width), I.dash = G(I.dash), I.stroke = G(I.stroke), I.fill = G(I.fill);
	let L, oe, se, ce = [], le = [], ue, de = !1, fe = {};
	if (M.live) {
		let e = v[1] ? v[1].values : null;
		de = e != null, ue = de ? e(r, 1, 0) : { _: 0 };
		for (let e in ue) fe[e] = Ut;
	}
	if (P) {
		if (L = Qt("table", vt, l), se = Qt("tbody", null, L), M.mount(r, L), de) {
			oe = Qt("thead", null, L, se);
			let e = Qt("tr", null, oe);
			for (var pe in Qt("th", null, e), ue) Qt("th", Ct, e).textContent = pe;
		} else Xt(L, bt), M.live && Xt(L, yt);
	}
	let me = { show: !0 }, he = { show: !1 };
	function ge(e, t) {
		if (t == 0 && (de || !M.live || i == 2)) return cr;
		let n = [], a = Qt("tr", xt, se, se.childNodes[t]);
		Xt(a, e.class), e.show || Xt(a, pt);
		let o = Qt("th", null, a);
		if (I.show) {
			let e = $t(St, o);
			if (t > 0) {
				let n = I.width(r, t);
				n && (e.style.border = n + "px " + I.dash(r, t) + " " + I.stroke(r, t)), e.style.background = I.fill(r, t);
			}
		}
		let s = $t(Ct, o);
		for (var c in e.label instanceof HTMLElement ? s.appendChild(e.label) : s.textContent = e.label, t > 0 && (I.show || (s.style.color = e.width > 0 ? I.stroke(r, t) : I.fill(r, t)), ve("click", o, (t) => {
			if (N._lock) return;
			Ue(t);
			let n = v.indexOf(e);
			if ((t.ctrlKey || t.metaKey) != M.isolate) {
				let e = v.some((e, t) => t > 0 && t != n && e.show);
				v.forEach((t, r) => {
					r > 0 && Jr(r, e ? r == n ? me : he : me, !0, $.setSeries);
				});
			} else Jr(n, { show: !e.show }, !0, $.setSeries);
		}, !1), Ke && ve(It, o, (t) => {
			N._lock || (Ue(t), Jr(v.indexOf(e), mi, !0, $.setSeries));
		}, !1)), ue) {
			let e = Qt("td", wt, a);
			e.textContent = "--", n.push(e);
		}
		return [a, n];
	}
	let _e = /* @__PURE__ */ new Map();
	function ve(e, t, n, i = !0) {
		let a = _e.get(t) || {}, o = N.bind[e](r, t, n, i);
		o && (ln(e, t, a[e] = o), _e.set(t, a));
	}
	function ye(e, t, n) {
		let r = _e.get(t) || {};
		for (let n in r) (e == null || n == e) && (un(n, t, r[n]), delete r[n]);
		e ?? _e.delete(t);
	}
	let be = 0, xe = 0, R = 0, z = 0, Se = 0, Ce = 0, we = Se, Te = Ce, Ee = R, De = z, Oe = 0, ke = 0, Ae = 0, je = 0;
	r.bbox = {};
	let Me = !1, Ne = !1, Pe = !1, Fe = !1, Ie = !1, B = !1;
	function Le(e, t, n) {
		(n || e != r.width || t != r.height) && Re(e, t), gr(!1), Pe = !0, Ne = !0, Cr();
	}
	function Re(e, t) {
		r.width = be = R = e, r.height = xe = z = t, Se = Ce = 0, Ve(), He();
		let n = r.bbox;
		Oe = n.left = er(Se * V, .5), ke = n.top = er(Ce * V, .5), Ae = n.width = er(R * V, .5), je = n.height = er(z * V, .5);
	}
	function ze() {
		let e = !1, t = 0;
		for (; !e;) {
			t++;
			let n = ar(t), i = ur(t);
			e = t == 3 || n && i, e || (Re(r.width, r.height), Ne = !0);
		}
	}
	function Be({ width: e, height: t }) {
		Le(e, t);
	}
	r.setSize = Be;
	function Ve() {
		let e = !1, t = !1, n = !1, r = !1;
		y.forEach((i, a) => {
			if (i.show && i._show) {
				let { side: a, _size: o } = i, s = a % 2, c = o + (i.label == null ? 0 : i.labelSize);
				c > 0 && (s ? (R -= c, a == 3 ? (Se += c, r = !0) : n = !0) : (z -= c, a == 0 ? (Ce += c, e = !0) : t = !0));
			}
		}), tt[0] = e, tt[1] = n, tt[2] = t, tt[3] = r, R -= jt[1] + jt[3], Se += jt[3], z -= jt[2] + jt[0], Ce += jt[0];
	}
	function He() {
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
		let r = e.prox = G(e.prox), i = e.bias ??= 0;
		N.dataIdx = (e, a, o, s) => {
			if (a == 0) return o;
			let c = o, l = r(e, a, o, s) ?? W, u = l >= 0 && l < W, d = D.ori == 0 ? R : z, f = N.left, p = t[0], m = t[a];
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
			} else u && jn(f - k(p[o], D, d, 0)) > l && (c = null);
			return c;
		};
	}
	let Ue = (e) => {
		N.event = e;
	};
	N.idxs = ae, N._lock = !1;
	let We = N.points;
	We.show = G(We.show), We.size = G(We.size), We.stroke = G(We.stroke), We.width = G(We.width), We.fill = G(We.fill);
	let Ge = r.focus = vr({}, e.focus || { alpha: .3 }, N.focus), Ke = Ge.prox >= 0, qe = Ke && We.one, Je = [], Ye = [], Xe = [];
	function Ze(e, t) {
		let n = We.show(r, t);
		if (n instanceof HTMLElement) return Xt(n, _t), Xt(n, e.class), tn(n, -10, -10, R, z), m.insertBefore(n, Je[t]), n;
	}
	function Qe(e, t) {
		if (i == 1 || t > 0) {
			let t = i == 1 && b[e.scale].time, n = e.value;
			e.value = t ? fr(n) ? ui(j, ci(n, te)) : n || ie : n || Gi, e.label = e.label || (t ? Mi : ji);
		}
		if (qe || t > 0) {
			e.width = e.width == null ? 1 : e.width, e.paths = e.paths || Ia || Yn, e.fillTo = G(e.fillTo || ca), e.pxAlign = +U(e.pxAlign, h), e.pxRound = fa(e.pxAlign), e.stroke = G(e.stroke || null), e.fill = G(e.fill || null), e._stroke = e._fill = e._paths = e._focus = null;
			let t = qi(In(1, e.width), 1), n = e.points = vr({}, {
				size: t,
				width: In(1, t * .2),
				stroke: e.stroke,
				space: t * 2,
				paths: La,
				_stroke: null,
				_fill: null
			}, e.points);
			n.show = G(n.show), n.filter = G(n.filter), n.fill = G(n.fill), n.stroke = G(n.stroke), n.paths = G(n.paths), n.pxAlign = e.pxAlign;
		}
		if (P) {
			let n = ge(e, t);
			ce.splice(t, 0, n[0]), le.splice(t, 0, n[1]), M.values.push(null);
		}
		if (F) {
			ae.splice(t, 0, null);
			let n = null;
			qe ? t == 0 && (n = Ze(e, t)) : t > 0 && (n = Ze(e, t)), Je.splice(t, 0, n), Ye.splice(t, 0, 0), Xe.splice(t, 0, 0);
		}
		Q("addSeries", t);
	}
	function $e(e, t) {
		t ??= v.length, e = i == 1 ? Ba(e, t, Ni, Qi) : Ba(e, t, {}, Zi), v.splice(t, 0, e), Qe(v[t], t);
	}
	r.addSeries = $e;
	function et(e) {
		if (v.splice(e, 1), P) {
			M.values.splice(e, 1), le.splice(e, 1);
			let t = ce.splice(e, 1)[0];
			ye(null, t.firstChild), t.remove();
		}
		F && (ae.splice(e, 1), Je.splice(e, 1)[0].remove(), Ye.splice(e, 1), Xe.splice(e, 1)), Q("delSeries", e);
	}
	r.delSeries = et;
	let tt = [
		!1,
		!1,
		!1,
		!1
	];
	function nt(e, t) {
		if (e._show = e.show, e.show) {
			let n = e.side % 2, i = b[e.scale];
			i ??= (e.scale = n ? v[1].scale : S, b[e.scale]);
			let a = i.time;
			e.size = G(e.size), e.space = G(e.space), e.rotate = G(e.rotate), lr(e.incrs) && e.incrs.forEach((e) => {
				!rr.has(e) && rr.set(e, ir(e));
			}), e.incrs = G(e.incrs || (i.distr == 2 ? Vr : a ? _ == 1 ? Qr : ti : Hr)), e.splits = G(e.splits || (a && i.distr == 1 ? ne : i.distr == 3 ? Ii : i.distr == 4 ? Li : Fi)), e.stroke = G(e.stroke), e.grid.stroke = G(e.grid.stroke), e.ticks.stroke = G(e.ticks.stroke), e.border.stroke = G(e.border.stroke);
			let o = e.values;
			e.values = lr(o) && !lr(o[0]) ? G(o) : a ? lr(o) ? ai(j, ii(o, te)) : fr(o) ? oi(j, o) : o || re : o || Pi, e.filter = G(e.filter || (i.distr >= 3 && i.log == 10 ? Ui : i.distr == 3 && i.log == 2 ? Wi : Jn)), e.font = Ya(e.font), e.labelFont = Ya(e.labelFont), e._size = e.size(r, null, t, 0), e._space = e._rotate = e._incrs = e._found = e._splits = e._values = null, e._size > 0 && (tt[t] = !0, e._el = $t(ft, f));
		}
	}
	function rt(e, t, n, r) {
		let [i, a, o, s] = n, c = t % 2, l = 0;
		return c == 0 && (s || a) && (l = t == 0 && !i || t == 2 && !o ? Nn(Ai.size / 3) : 0), c == 1 && (i || o) && (l = t == 1 && !a || t == 3 && !s ? Nn(Ki.size / 2) : 0), l;
	}
	let it = r.padding = (e.padding || [
		rt,
		rt,
		rt,
		rt
	]).map((e) => G(U(e, rt))), jt = r._padding = it.map((e, t) => e(r, t, tt, 0)), zt, Bt = null, Vt = null, Wt = i == 1 ? v[0].idxs : null, qt = null, Jt = !1;
	function Yt(e, n) {
		if (t = e ?? [], r.data = r._data = t, i == 2) {
			zt = 0;
			for (let e = 1; e < v.length; e++) zt += t[e][0].length;
		} else {
			t.length == 0 && (r.data = r._data = t = [[]]), qt = t[0], zt = qt.length;
			let e = t;
			if (O == 2) {
				e = t.slice();
				let n = e[0] = Array(zt);
				for (let e = 0; e < zt; e++) n[e] = e;
			}
			r._data = t = e;
		}
		if (gr(!0), Q("setData"), O == 2 && (Pe = !0), n !== !1) {
			let e = D;
			e.auto(r, Jt) ? en() : qr(S, e.min, e.max), Fe ||= N.left >= 0, B = !0, Cr();
		}
	}
	r.setData = Yt;
	function en() {
		Jt = !0;
		let e, n;
		i == 1 && (zt > 0 ? (Bt = Wt[0] = 0, Vt = Wt[1] = zt - 1, e = t[0][Bt], n = t[0][Vt], O == 2 ? (e = Bt, n = Vt) : e == n && (O == 3 ? [e, n] = vn(e, e, D.log, !1) : O == 4 ? [e, n] = yn(e, e, D.log, !1) : D.time ? n = e + Nn(86400 / _) : [e, n] = wn(e, n, bn, !0))) : (Bt = Wt[0] = e = null, Vt = Wt[1] = n = null)), qr(S, e, n);
	}
	let nn, an, sn, cn, fn, pn, mn, hn, gn, Sn;
	function Cn(e, t, n, r, i, a) {
		e ??= Mt, n ??= sr, r ??= "butt", i ??= Mt, a ??= "round", e != nn && (d.strokeStyle = nn = e), i != an && (d.fillStyle = an = i), t != sn && (d.lineWidth = sn = t), a != fn && (d.lineJoin = fn = a), r != pn && (d.lineCap = pn = r), n != cn && d.setLineDash(cn = n);
	}
	function En(e, t, n, r) {
		t != an && (d.fillStyle = an = t), e != mn && (d.font = mn = e), n != hn && (d.textAlign = hn = n), r != gn && (d.textBaseline = gn = r);
	}
	function Dn(e, t, n, i, a = 0) {
		if (i.length > 0 && e.auto(r, Jt) && (t == null || t.min == null)) {
			let t = U(Bt, 0), r = U(Vt, i.length - 1), o = n.min == null ? _n(i, t, r, a, e.distr == 3) : [n.min, n.max];
			e.min = Fn(e.min, n.min = o[0]), e.max = In(e.max, n.max = o[1]);
		}
	}
	let On = {
		min: null,
		max: null
	};
	function kn() {
		for (let e in b) {
			let t = b[e];
			A[e] == null && (t.min == null || A[S] != null && t.auto(r, Jt)) && (A[e] = On);
		}
		for (let e in b) {
			let t = b[e];
			A[e] == null && t.from != null && A[t.from] != null && (A[e] = On);
		}
		A[S] != null && gr(!0);
		let e = {};
		for (let t in A) {
			let n = A[t];
			if (n != null) {
				let a = e[t] = _r(b[t], mr);
				if (n.min != null) vr(a, n);
				else if (t != S || i == 2) {
					if (zt == 0 && a.from == null) {
						let e = a.range(r, null, null, t);
						a.min = e[0], a.max = e[1];
					} else a.min = W, a.max = -Infinity;
				}
			}
		}
		if (zt > 0) {
			v.forEach((n, a) => {
				if (i == 1) {
					let i = n.scale, o = A[i];
					if (o == null) return;
					let s = e[i];
					if (a == 0) {
						let e = s.range(r, s.min, s.max, i);
						s.min = e[0], s.max = e[1], Bt = dn(s.min, t[0]), Vt = dn(s.max, t[0]), Vt - Bt > 1 && (t[0][Bt] < s.min && Bt++, t[0][Vt] > s.max && Vt--), n.min = qt[Bt], n.max = qt[Vt];
					} else n.show && n.auto && Dn(s, o, n, t[a], n.sorted);
					n.idxs[0] = Bt, n.idxs[1] = Vt;
				} else if (a > 0 && n.show && n.auto) {
					let [r, i] = n.facets, o = r.scale, s = i.scale, [c, l] = t[a], u = e[o], d = e[s];
					u != null && Dn(u, A[o], r, c, r.sorted), d != null && Dn(d, A[s], i, l, i.sorted), n.min = i.min, n.max = i.max;
				}
			});
			for (let t in e) {
				let n = e[t], i = A[t];
				if (n.from == null && (i == null || i.min == null)) {
					let e = n.range(r, n.min == W ? null : n.min, n.max == -Infinity ? null : n.max, t);
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
				i._min = e == 3 ? zn(i.min) : e == 4 ? Hn(i.min, i.asinh) : e == 100 ? i.fwd(i.min) : i.min, i._max = e == 3 ? zn(i.max) : e == 4 ? Hn(i.max, i.asinh) : e == 100 ? i.fwd(i.max) : i.max, n[t] = a = !0;
			}
		}
		if (a) {
			v.forEach((e, t) => {
				i == 2 ? t > 0 && n.y && (e._paths = null) : n[e.scale] && (e._paths = null);
			});
			for (let e in n) Pe = !0, Q("setScale", e);
			F && N.left >= 0 && (Fe = B = !0);
		}
		for (let e in A) A[e] = null;
	}
	function Mn(e) {
		let t = Wn(Bt - 1, 0, zt - 1), n = Wn(Vt + 1, 0, zt - 1);
		for (; e[t] == null && t > 0;) t--;
		for (; e[n] == null && n < zt - 1;) n++;
		return [t, n];
	}
	function Rn() {
		if (zt > 0) {
			let e = v.some((e) => e._focus) && Sn != Ge.alpha;
			e && (d.globalAlpha = Sn = Ge.alpha), v.forEach((e, n) => {
				if (n > 0 && e.show && (Bn(n, !1), Bn(n, !0), e._paths == null)) {
					let a = Sn;
					Sn != e.alpha && (d.globalAlpha = Sn = e.alpha);
					let o = i == 2 ? [0, t[n][0].length - 1] : Mn(t[n]);
					e._paths = e.paths(r, n, o[0], o[1]), Sn != a && (d.globalAlpha = Sn = a);
				}
			}), v.forEach((e, t) => {
				if (t > 0 && e.show) {
					let n = Sn;
					Sn != e.alpha && (d.globalAlpha = Sn = e.alpha), e._paths != null && Un(t, !1);
					{
						let n = e._paths == null ? null : e._paths.gaps, i = e.points.show(r, t, Bt, Vt, n), a = e.points.filter(r, t, i, n);
						(i || a) && (e.points._paths = e.points.paths(r, t, Bt, Vt, a), Un(t, !0));
					}
					Sn != n && (d.globalAlpha = Sn = n), Q("drawSeries", t);
				}
			}), e && (d.globalAlpha = Sn = 1);
		}
	}
	function Bn(e, t) {
		let n = t ? v[e].points : v[e];
		n._stroke = n.stroke(r, e), n._fill = n.fill(r, e);
	}
	function Un(e, t) {
		let n = t ? v[e].points : v[e], { stroke: r, fill: i, clip: a, flags: o, _stroke: s = n._stroke, _fill: c = n._fill, _width: l = n.width } = n._paths;
		l = K(l * V, 3);
		let u = null, f = l % 2 / 2;
		t && c == null && (c = l > 0 ? "#fff" : s);
		let p = n.pxAlign == 1 && f > 0;
		if (p && d.translate(f, f), !t) {
			let e = Oe - l / 2, t = ke - l / 2, n = Ae + l, r = je + l;
			u = new Path2D(), u.rect(e, t, n, r);
		}
		t ? qn(s, l, n.dash, n.cap, c, r, i, o, a) : Kn(e, s, l, n.dash, n.cap, c, r, i, o, u, a), p && d.translate(-f, -f);
	}
	function Kn(e, n, i, a, o, s, c, l, u, d, f) {
		let p = !1;
		u != 0 && x.forEach((m, h) => {
			if (m.series[0] == e) {
				let e = v[m.series[1]], g = t[m.series[1]], _ = (e._paths || or).band;
				lr(_) && (_ = m.dir == 1 ? _[0] : _[1]);
				let y, b = null;
				e.show && _ && Tn(g, Bt, Vt) ? (b = m.fill(r, h) || s, y = e._paths.clip) : _ = null, qn(n, i, a, o, b, c, l, u, d, f, y, _), p = !0;
			}
		}), p || qn(n, i, a, o, s, c, l, u, d, f);
	}
	function qn(e, t, n, r, i, a, o, s, c, l, u, f) {
		Cn(e, t, n, r, i), (c || l || f) && (d.save(), c && d.clip(c), l && d.clip(l)), f ? (s & 3) == 3 ? (d.clip(f), u && d.clip(u), $n(i, o), Qn(e, a, t)) : s & aa ? ($n(i, o), d.clip(f), Qn(e, a, t)) : s & ia && (d.save(), d.clip(f), u && d.clip(u), $n(i, o), d.restore(), Qn(e, a, t)) : ($n(i, o), Qn(e, a, t)), (c || l || f) && d.restore();
	}
	function Qn(e, t, n) {
		n > 0 && (t instanceof Map ? t.forEach((e, t) => {
			d.strokeStyle = nn = t, d.stroke(e);
		}) : t != null && e && d.stroke(t));
	}
	function $n(e, t) {
		t instanceof Map ? t.forEach((e, t) => {
			d.fillStyle = an = t, d.fill(e);
		}) : t != null && e && d.fill(t);
	}
	function tr(e, t, n, i) {
		let a = y[e], o;
		if (i <= 0) o = [0, 0];
		else {
			let s = a._space = a.space(r, e, t, n, i);
			o = Ja(t, n, a._incrs = a.incrs(r, e, t, n, i, s), i, s);
		}
		return a._found = o;
	}
	function nr(e, t, n, r, i, a, o, s, c, l) {
		let u = o % 2 / 2;
		h == 1 && d.translate(u, u), Cn(s, o, c, l, s), d.beginPath();
		let f, p, m, g, _ = i + (r == 0 || r == 3 ? -a : a);
		n == 0 ? (p = i, g = _) : (f = i, m = _);
		for (let r = 0; r < e.length; r++) t[r] != null && (n == 0 ? f = m = e[r] : p = g = e[r], d.moveTo(f, p), d.lineTo(m, g));
		d.stroke(), h == 1 && d.translate(-u, -u);
	}
	function ar(e) {
		let t = !0;
		return y.forEach((n, i) => {
			if (!n.show) return;
			let a = b[n.scale];
			if (a.min == null) {
				n._show && (t = !1, n._show = !1, gr(!1));
				return;
			}
			n._show || (t = !1, n._show = !0, gr(!1));
			let o = n.side, s = o % 2, { min: c, max: l } = a, [u, d] = tr(i, c, l, s == 0 ? R : z);
			if (d == 0) return;
			let f = a.distr == 2, p = n._splits = n.splits(r, i, c, l, u, d, f), m = a.distr == 2 ? p.map((e) => qt[e]) : p, h = a.distr == 2 ? qt[p[1]] - qt[p[0]] : u, g = n._values = n.values(r, n.filter(r, m, i, d, h), i, d, h);
			n._rotate = o == 2 ? n.rotate(r, g, i, d) : 0;
			let _ = n._size;
			n._size = Pn(n.size(r, g, i, e)), _ != null && n._size != _ && (t = !1);
		}), t;
	}
	function ur(e) {
		let t = !0;
		return it.forEach((n, i) => {
			let a = n(r, i, tt, e);
			a != jt[i] && (t = !1), jt[i] = a;
		}), t;
	}
	function hr() {
		for (let e = 0; e < y.length; e++) {
			let t = y[e];
			if (!t.show || !t._show) continue;
			let n = t.side, i = n % 2, a, o, c = t.stroke(r, e), l = n == 0 || n == 3 ? -1 : 1, [u, f] = t._found;
			if (t.label != null) {
				let s = t.labelGap * l, p = Nn((t._lpos + s) * V);
				En(t.labelFont[0], c, "center", n == 2 ? Dt : Ot), d.save(), i == 1 ? (a = o = 0, d.translate(p, Nn(ke + je / 2)), d.rotate((n == 3 ? -An : An) / 2)) : (a = Nn(Oe + Ae / 2), o = p);
				let m = Gn(t.label) ? t.label(r, e, u, f) : t.label;
				d.fillText(m, a, o), d.restore();
			}
			if (f == 0) continue;
			let p = b[t.scale], m = i == 0 ? Ae : je, h = i == 0 ? Oe : ke, _ = t._splits, v = p.distr == 2 ? _.map((e) => qt[e]) : _, x = p.distr == 2 ? qt[_[1]] - qt[_[0]] : u, S = t.ticks, C = t.border, w = S.show ? S.size : 0, T = Nn(w * V), E = Nn((t.alignTo == 2 ? t._size - w - t.gap : t.gap) * V), D = t._rotate * -An / 180, O = g(t._pos * V), k = O + (T + E) * l;
			o = i == 0 ? k : 0, a = i == 1 ? k : 0;
			let ee = t.font[0];
			En(ee, c, t.align == 1 ? kt : t.align == 2 ? At : D > 0 ? kt : D < 0 ? At : i == 0 ? "center" : n == 3 ? At : kt, D || i == 1 ? "middle" : n == 2 ? Dt : Ot);
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
			S.show && nr(j, S.filter(r, v, e, f, x), i, n, O, T, K(S.width * V, 3), S.stroke(r, e), S.dash, S.cap);
			let ne = t.grid;
			ne.show && nr(j, ne.filter(r, v, e, f, x), i, i == 0 ? 2 : 1, i == 0 ? ke : Oe, i == 0 ? je : Ae, K(ne.width * V, 3), ne.stroke(r, e), ne.dash, ne.cap), C.show && nr([O], [1], +(i == 0), i == 0 ? 1 : 2, i == 1 ? ke : Oe, i == 1 ? je : Ae, K(C.width * V, 3), C.stroke(r, e), C.dash, C.cap);
		}
		Q("drawAxes");
	}
	function gr(e) {
		v.forEach((t, n) => {
			n > 0 && (t._paths = null, e && (i == 1 ? (t.min = null, t.max = null) : t.facets.forEach((e) => {
				e.min = null, e.max = null;
			})));
		});
	}
	let yr = !1, br = !1, xr = [];
	function Sr() {
		br = !1;
		for (let e = 0; e < xr.length; e++) Q(...xr[e]);
		xr.length = 0;
	}
	function Cr() {
		yr ||= (wr(Er), !0);
	}
	function Tr(e, t = !1) {
		yr = !0, br = t, e(r), Er(), t && xr.length > 0 && queueMicrotask(Sr);
	}
	r.batch = Tr;
	function Er() {
		if (Me &&= (kn(), !1), Pe &&= (ze(), !1), Ne) {
			if (H(p, kt, Se), H(p, Dt, Ce), H(p, Tt, R), H(p, Et, z), H(m, kt, Se), H(m, Dt, Ce), H(m, Tt, R), H(m, Et, z), H(f, Tt, be), H(f, Et, xe), u.width = Nn(be * V), u.height = Nn(xe * V), y.forEach(({ _el: e, _show: t, _size: n, _pos: r, side: i }) => {
				if (e != null) {
					if (t) {
						let t = i === 3 || i === 0 ? n : 0, a = i % 2 == 1;
						H(e, a ? "left" : "top", r - t), H(e, a ? "width" : "height", n), H(e, a ? "top" : "left", a ? Ce : Se), H(e, a ? "height" : "width", a ? z : R), Zt(e, pt);
					} else Xt(e, pt);
				}
			}), nn = an = sn = fn = pn = mn = hn = gn = cn = null, Sn = 1, Oi(!0), Se != we || Ce != Te || R != Ee || z != De) {
				gr(!1);
				let e = R / Ee, t = z / De;
				if (F && !Fe && N.left >= 0) {
					N.left *= e, N.top *= t, Ar && tn(Ar, Nn(N.left), 0, R, z), jr && tn(jr, 0, Nn(N.top), R, z);
					for (let n = 0; n < Je.length; n++) {
						let r = Je[n];
						r != null && (Ye[n] *= e, Xe[n] *= t, tn(r, Pn(Ye[n]), Pn(Xe[n]), R, z));
					}
				}
				if (X.show && !Ie && X.left >= 0 && X.width > 0) {
					X.left *= e, X.width *= e, X.top *= t, X.height *= t;
					for (let e in zi) H(Wr, e, X[e]);
				}
				we = Se, Te = Ce, Ee = R, De = z;
			}
			Q("setSize"), Ne = !1;
		}
		be > 0 && xe > 0 && (d.clearRect(0, 0, u.width, u.height), Q("drawClear"), w.forEach((e) => e()), Q("draw")), X.show && Ie && (Gr(X), Ie = !1), F && Fe && (Ei(null, !0, !1), Fe = !1), M.show && M.live && B && (wi(), B = !1), c || (c = !0, r.status = 1, Q("ready")), Jt = !1, yr = !1;
	}
	r.redraw = (e, t) => {
		Pe = t || !1, e === !1 ? Cr() : qr(S, D.min, D.max);
	};
	function Dr(e, n) {
		let i = b[e];
		if (i.from == null) {
			if (zt == 0) {
				let t = i.range(r, n.min, n.max, e);
				n.min = t[0], n.max = t[1];
			}
			if (n.min > n.max) {
				let e = n.min;
				n.min = n.max, n.max = e;
			}
			if (zt > 1 && n.min != null && n.max != null && n.max - n.min < 1e-16) return;
			e == S && i.distr == 2 && zt > 0 && (n.min = dn(n.min, t[0]), n.max = dn(n.max, t[0]), n.min == n.max && n.max++), A[e] = n, Me = !0, Cr();
		}
	}
	r.setScale = Dr;
	let Or, kr, Ar, jr, Mr, Nr, Pr, Fr, Lr, Rr, q, J, zr = !1, Br = N.drag, Y = Br.x, Ur = Br.y;
	F && (N.x && (Or = $t(ht, m)), N.y && (kr = $t(gt, m)), D.ori == 0 ? (Ar = Or, jr = kr) : (Ar = kr, jr = Or), q = N.left, J = N.top);
	let X = r.select = vr({
		show: !0,
		over: !0,
		left: 0,
		width: 0,
		top: 0,
		height: 0
	}, e.select), Wr = X.show ? $t(mt, X.over ? m : p) : null;
	function Gr(e, t) {
		if (X.show) {
			for (let t in e) X[t] = e[t], t in zi && H(Wr, t, e[t]);
			t !== !1 && Q("setSelect");
		}
	}
	r.setSelect = Gr;
	function Kr(e) {
		if (v[e].show) P && Zt(ce[e], pt);
		else if (P && Xt(ce[e], pt), F) {
			let t = qe ? Je[0] : Je[e];
			t != null && tn(t, -10, -10, R, z);
		}
	}
	function qr(e, t, n) {
		Dr(e, {
			min: t,
			max: n
		});
	}
	function Jr(e, t, n, a) {
		t.focus != null && hi(e), t.show != null && v.forEach((n, r) => {
			r > 0 && (e == r || e == null) && (n.show = t.show, Kr(r), i == 2 ? (qr(n.facets[0].scale, null, null), qr(n.facets[1].scale, null, null)) : qr(n.scale, null, null), Cr());
		}), n !== !1 && Q("setSeries", e, t), a && ga("setSeries", r, e, t);
	}
	r.setSeries = Jr;
	function Yr(e, t) {
		vr(x[e], t);
	}
	function Xr(e, t) {
		e.fill = G(e.fill || null), e.dir = U(e.dir, -1), t ??= x.length, x.splice(t, 0, e);
	}
	function Z(e) {
		e == null ? x.length = 0 : x.splice(e, 1);
	}
	r.addBand = Xr, r.setBand = Yr, r.delBand = Z;
	function Zr(e, t) {
		v[e].alpha = t, F && Je[e] != null && (Je[e].style.opacity = t), P && ce[e] && (ce[e].style.opacity = t);
	}
	let si, di, fi, mi = { focus: !0 };
	function hi(e) {
		if (e != fi) {
			let t = e == null, n = Ge.alpha != 1;
			v.forEach((r, a) => {
				if (i == 1 || a > 0) {
					let i = t || a == 0 || a == e;
					r._focus = t ? null : i, n && Zr(a, i ? 1 : Ge.alpha);
				}
			}), fi = e, n && Cr();
		}
	}
	P && Ke && ve(Lt, L, (e) => {
		N._lock || (Ue(e), fi != null && Jr(null, mi, !0, $.setSeries));
	});
	function gi(e, t, n) {
		let r = b[t];
		n && (e = e / V - (r.ori == 1 ? Ce : Se));
		let i = R;
		r.ori == 1 && (i = z, e = i - e), r.dir == -1 && (e = i - e);
		let a = r._min, o = r._max, s = e / i, c = a + (o - a) * s, l = r.distr;
		return l == 3 ? Ln(10, c) : l == 4 ? Vn(c, r.asinh) : l == 100 ? r.bwd(c) : c;
	}
	function _i(e, n) {
		return dn(gi(e, S, n), t[0], Bt, Vt);
	}
	r.valToIdx = (e) => dn(e, t[0]), r.posToIdx = _i, r.posToVal = gi, r.valToPos = (e, t, n) => b[t].ori == 0 ? a(e, b[t], n ? Ae : R, n ? Oe : 0) : o(e, b[t], n ? je : z, n ? ke : 0), r.setCursor = (e, t, n) => {
		q = e.left, J = e.top, Ei(null, t, n);
	};
	function vi(e, t) {
		H(Wr, kt, X.left = e), H(Wr, Tt, X.width = t);
	}
	function yi(e, t) {
		H(Wr, Dt, X.top = e), H(Wr, Et, X.height = t);
	}
	let bi = D.ori == 0 ? vi : yi, xi = D.ori == 1 ? vi : yi;
	function Ci() {
		if (P && M.live) for (let e = +(i == 2); e < v.length; e++) {
			if (e == 0 && de) continue;
			let t = M.values[e], n = 0;
			for (let r in t) le[e][n++].firstChild.nodeValue = t[r];
		}
	}
	function wi(e, t) {
		if (e != null && (e.idxs ? e.idxs.forEach((e, t) => {
			ae[t] = e;
		}) : dr(e.idx) || ae.fill(e.idx), M.idx = ae[0]), P && M.live) {
			for (let e = 0; e < v.length; e++) (e > 0 || i == 1 && !de) && Ti(e, ae[e]);
			Ci();
		}
		B = !1, t !== !1 && Q("setLegend");
	}
	r.setLegend = wi;
	function Ti(e, n) {
		let i = v[e], a = e == 0 && O == 2 ? qt : t[e], o;
		de ? o = i.values(r, e, n) ?? fe : (o = i.value(r, n == null ? null : a[n], e, n), o = o == null ? fe : { _: o }), M.values[e] = o;
	}
	function Ei(e, n, a) {
		Lr = q, Rr = J, [q, J] = N.move(r, q, J), N.left = q, N.top = J, F && (Ar && tn(Ar, Nn(q), 0, R, z), jr && tn(jr, 0, Nn(J), R, z));
		let o, s = Bt > Vt;
		si = W, di = null;
		let c = D.ori == 0 ? R : z, l = D.ori == 1 ? R : z;
		if (q < 0 || zt == 0 || s) {
			o = N.idx = null;
			for (let e = 0; e < v.length; e++) {
				let t = Je[e];
				t != null && tn(t, -10, -10, R, z);
			}
			Ke && Jr(null, mi, !0, e == null && $.setSeries), M.live && (ae.fill(o), B = !0);
		} else {
			let e, n, a;
			i == 1 && (e = D.ori == 0 ? q : J, n = gi(e, S), o = N.idx = dn(n, t[0], Bt, Vt), a = k(t[0][o], D, c, 0));
			let s = -10, u = -10, d = 0, f = 0, p = !0, m = "", h = "";
			for (let e = +(i == 2); e < v.length; e++) {
				let g = v[e], _ = ae[e], y = _ == null ? null : i == 1 ? t[e][_] : t[e][1][_], x = N.dataIdx(r, e, o, n), S = x == null ? null : i == 1 ? t[e][x] : t[e][1][x];
				if (B = B || S != y || x != _, ae[e] = x, e > 0 && g.show) {
					let n = x == null ? -10 : x == o ? a : k(i == 1 ? t[0][x] : t[e][0][x], D, c, 0), _ = S == null ? -10 : ee(S, i == 1 ? b[g.scale] : b[g.facets[1].scale], l, 0);
					if (Ke && S != null) {
						let t = D.ori == 1 ? q : J, n = jn(Ge.dist(r, e, x, _, t));
						if (n < si) {
							let r = Ge.bias;
							if (r != 0) {
								let i = gi(t, g.scale), a = S >= 0 ? 1 : -1, o = i >= 0 ? 1 : -1;
								o == a && (o == 1 ? r == 1 ? S >= i : S <= i : r == 1 ? S <= i : S >= i) && (si = n, di = e);
							} else si = n, di = e;
						}
					}
					if (B || qe) {
						let t, i;
						D.ori == 0 ? (t = n, i = _) : (t = _, i = n);
						let a, o, c, l, g, v, y = !0, b = We.bbox;
						if (b != null) {
							y = !1;
							let t = b(r, e);
							c = t.left, l = t.top, a = t.width, o = t.height;
						} else c = t, l = i, a = o = We.size(r, e);
						if (v = We.fill(r, e), g = We.stroke(r, e), qe) e == di && si <= Ge.prox && (s = c, u = l, d = a, f = o, p = y, m = v, h = g);
						else {
							let t = Je[e];
							t != null && (Ye[e] = c, Xe[e] = l, on(t, a, o, y), rn(t, v, g), tn(t, Pn(c), Pn(l), R, z));
						}
					}
				}
			}
			if (qe) {
				let e = Ge.prox;
				if (B || (fi == null ? si <= e : si > e || di != fi)) {
					let e = Je[0];
					e != null && (Ye[0] = s, Xe[0] = u, on(e, d, f, p), rn(e, m, h), tn(e, Pn(s), Pn(u), R, z));
				}
			}
		}
		if (X.show && zr) {
			if (e != null) {
				let [t, n] = $.scales, [r, i] = $.match, [a, o] = e.cursor.sync.scales, s = e.cursor.drag;
				if (Y = s._x, Ur = s._y, Y || Ur) {
					let { left: s, top: u, width: d, height: f } = e.select, p = e.scales[a].ori, m = e.posToVal, h, g, _, v, y, x = t != null && r(t, a), S = n != null && i(n, o);
					x && Y ? (p == 0 ? (h = s, g = d) : (h = u, g = f), _ = b[t], v = k(m(h, a), _, c, 0), y = k(m(h + g, a), _, c, 0), bi(Fn(v, y), jn(y - v))) : bi(0, c), S && Ur ? (p == 1 ? (h = s, g = d) : (h = u, g = f), _ = b[n], v = ee(m(h, o), _, l, 0), y = ee(m(h + g, o), _, l, 0), xi(Fn(v, y), jn(y - v))) : xi(0, l);
				} else Bi();
			} else {
				let e = jn(Lr - Mr), t = jn(Rr - Nr);
				if (D.ori == 1) {
					let n = e;
					e = t, t = n;
				}
				Y = Br.x && e >= Br.dist, Ur = Br.y && t >= Br.dist;
				let n = Br.uni;
				n == null ? Br.x && Br.y && (Y || Ur) && (Y = Ur = !0) : Y && Ur && (Y = e >= n, Ur = t >= n, !Y && !Ur && (t > e ? Ur = !0 : Y = !0));
				let r, i;
				Y && (D.ori == 0 ? (r = Pr, i = q) : (r = Fr, i = J), bi(Fn(r, i), jn(i - r)), Ur || xi(0, l)), Ur && (D.ori == 1 ? (r = Pr, i = q) : (r = Fr, i = J), xi(Fn(r, i), jn(i - r)), Y || bi(0, c)), !Y && !Ur && (bi(0, 0), xi(0, 0));
			}
		}
		if (Br._x = Y, Br._y = Ur, e == null) {
			if (a) {
				if (ma != null) {
					let [e, t] = $.scales;
					$.values[0] = e == null ? null : gi(D.ori == 0 ? q : J, e), $.values[1] = t == null ? null : gi(D.ori == 1 ? q : J, t);
				}
				ga(Nt, r, q, J, R, z, o);
			}
			if (Ke) {
				let e = a && $.setSeries, t = Ge.prox;
				fi == null ? si <= t && Jr(di, mi, !0, e) : si > t ? Jr(null, mi, !0, e) : di != fi && Jr(di, mi, !0, e);
			}
		}
		B && (M.idx = o, wi()), n !== !1 && Q("setCursor");
	}
	let Di = null;
	Object.defineProperty(r, "rect", { get() {
		return Di ?? Oi(!1), Di;
	} });
	function Oi(e = !1) {
		e ? Di = null : (Di = m.getBoundingClientRect(), Q("syncRect", Di));
	}
	function ki(e, t, n, r, i, a, o) {
		N._lock || zr && e != null && e.movementX == 0 && e.movementY == 0 || (Ri(e, t, n, r, i, a, o, !1, e != null), e == null ? Ei(t, !0, !1) : Ei(null, !0, !0));
	}
	function Ri(e, t, n, i, a, o, c, l, u) {
		if (Di ?? Oi(!1), Ue(e), e != null) n = e.clientX - Di.left, i = e.clientY - Di.top;
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
		u && (t == null || t.cursor.event.type == Nt) && ((n <= 1 || n >= R - 1) && (n = er(n, R)), (i <= 1 || i >= z - 1) && (i = er(i, z))), l ? (Mr = n, Nr = i, [Pr, Fr] = N.move(r, n, i)) : (q = n, J = i);
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
		zr = !0, Y = Ur = Br._x = Br._y = !1, Ri(e, t, n, i, a, o, s, !0, !1), e != null && (ve(Ft, Gt, na, !1), ga(Pt, r, Pr, Fr, R, z, null));
		let { left: c, top: l, width: u, height: d } = X;
		Vi = c, Hi = l, Ji = u, Yi = d;
	}
	function na(e, t, n, i, a, o, s) {
		zr = Br._x = Br._y = !1, Ri(e, t, n, i, a, o, s, !1, !0);
		let { left: c, top: l, width: u, height: d } = X, f = u > 0 || d > 0, p = Vi != c || Hi != l || Ji != u || Yi != d;
		if (f && p && Gr(X), Br.setScale && f && p) {
			let e = c, t = u, n = l, r = d;
			if (D.ori == 1 && (e = l, t = d, n = c, r = u), Y && qr(S, gi(e, S), gi(e + t, S)), Ur) for (let e in b) {
				let t = b[e];
				e != S && t.from == null && t.min != W && qr(e, gi(n + r, e), gi(n, e));
			}
			Bi();
		} else N.lock && (N._lock = !N._lock, Ei(t, !0, e != null));
		e != null && (ye(Ft, Gt), ga(Ft, r, q, J, R, z, null));
	}
	function oa(e, t, n, r, i, a, o) {
		if (N._lock) return;
		Ue(e);
		let s = zr;
		if (zr) {
			let e = !0, t = !0, n, r;
			D.ori == 0 ? (n = Y, r = Ur) : (n = Ur, r = Y), n && r && (e = q <= 10 || q >= R - 10, t = J <= 10 || J >= z - 10), n && e && (q = q < Pr ? 0 : R), r && t && (J = J < Fr ? 0 : z), Ei(null, !0, !0), zr = !1;
		}
		q = -10, J = -10, ae.fill(null), Ei(null, !0, !0), s && (zr = s);
	}
	function sa(e, t, n, i, a, o, s) {
		N._lock || (Ue(e), en(), Bi(), e != null && ga(Rt, r, q, J, R, z, null));
	}
	function la() {
		y.forEach(Xa), Le(r.width, r.height, !0);
	}
	ln(Ht, Kt, la);
	let ua = {};
	ua.mousedown = Xi, ua.mousemove = ki, ua.mouseup = na, ua.dblclick = sa, ua.setSeries = (e, t, n, i) => {
		let a = $.match[2];
		n = a(r, t, n), n != -1 && Jr(n, i, !0, !1);
	}, F && (ve(Pt, m, Xi), ve(Nt, m, ki), ve(It, m, (e) => {
		Ue(e), Oi(!1);
	}), ve(Lt, m, oa), ve(Rt, m, sa), Pa.add(r), r.syncRect = Oi);
	let da = r.hooks = e.hooks || {};
	function Q(e, t, n) {
		br ? xr.push([
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
	let pa = (e, t, n) => n, $ = vr({
		key: null,
		setSeries: !1,
		filters: {
			pub: Xn,
			sub: Xn
		},
		scales: [S, v[1] ? v[1].scale : null],
		match: [
			Zn,
			Zn,
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
		ha.unsub(r), Pa.delete(r), _e.clear(), un(Ht, Kt, la), l.remove(), L?.remove(), Q("destroy");
	}
	r.destroy = va;
	function ya() {
		Q("init", e, t), Yt(t || e.data, !1), A[S] ? Dr(S, A[S]) : en(), Ie = X.show && (X.width > 0 || X.height > 0), Fe = B = !0, Le(e.width, e.height);
	}
	return v.forEach(Qe), y.forEach(nt), n ? n instanceof HTMLElement ? (n.appendChild(l), ya()) : n(r, ya) : ya(), r;
}
Za.assign = vr, Za.fmtNum = On, Za.rangeNum = wn, Za.rangeLog = vn, Za.rangeAsinh = yn, Za.orient = oa, Za.pxRatio = V, Za.join = Cr, Za.fmtDate = Ir, Za.tzDate = Rr, Za.sync = ra;
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
	#t = f("dl", { class: "figures" });
	#n;
	#r = f("div", { class: "bars" });
	#i = () => this.#a();
	constructor(e, t) {
		this.#e = e;
		let n = f("div", {
			class: "loss",
			role: "img"
		}), r = f("p", {
			class: "keys",
			"aria-hidden": !0
		}, f("span", {}, "loss of a step"), f("span", { class: "smoothed" }, "smoothed"), f("span", { class: "heldout" }, "held-out"));
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
		this.#n.reset(oo(this.#e.get("losses")), oo(this.#e.get("heldout"))), this.#t.replaceChildren(Ue("Step", `${e.step}`), Ue("Loss", ao(e.loss)), Ue("Held-out", ao(e.heldout)), Ue("Time of a step", e.step_s === null ? "–" : u(e.step_s))), this.#r.replaceChildren(...so(e));
	}
}, ao = (e) => e === null ? "–" : e.toFixed(3);
function oo(e) {
	let t = Fe(e);
	return Array.from({ length: t.length / 2 }, (e, n) => [t[2 * n] ?? 0, t[2 * n + 1] ?? 0]);
}
function so({ planned_bytes: e, measured_bytes: t, by_class: n }) {
	let r = Math.max(e, t, 1), i = (e, t, n) => {
		let i = f("i", {
			class: e,
			title: n
		});
		return i.style.width = `${100 * t / r}%`, i;
	}, a = x.filter((e) => (n[e] ?? 0) > 0).map((e) => i(`swatch-${e}`, n[e], `${e}: ${o(n[e])}`)), s = t - e, l = s === 0 ? "0 B off" : `${c(Math.abs(s))} B ${s > 0 ? "more" : "less"}`;
	return [
		f("span", {}, "Planned"),
		f("div", { class: "bar" }, ...a),
		f("span", { "data-figure": "Planned" }, o(e)),
		f("span", {}, "Measured"),
		f("div", { class: "bar" }, i("measured", t, `measured: ${o(t)}`)),
		f("span", { "data-figure": "Measured" }, `${o(t)}, ${l}`)
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
		case "plan": return new et(e, t);
		case "compare": return new We(e, t);
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
