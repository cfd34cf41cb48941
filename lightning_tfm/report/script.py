"""The page's script. Without it all numbers and pictures are there, only unsorted; attention maps need it."""

JS = """
'use strict';
const $=(q,e=document)=>[...e.querySelectorAll(q)];
const body=document.querySelector('#table tbody');
if(body){
 const rows=$('tr',body);
 $('#table thead button').forEach(b=>b.addEventListener('click',()=>{
  const th=b.closest('th'),i=[...th.parentNode.children].indexOf(th);
  const next={none:'ascending',ascending:'descending',descending:'none'}[th.getAttribute('aria-sort')];
  $('#table th[aria-sort]').forEach(x=>x.setAttribute('aria-sort','none'));th.setAttribute('aria-sort',next);
  const key=r=>r.children[i].dataset.v;
  const order=[...rows];
  if(next!=='none')order.sort((a,b)=>{
   const x=key(a),y=key(b);if(x===''||y==='')return (x==='')-(y==='');
   const d=isNaN(x)||isNaN(y)?x.localeCompare(y):x-y;return next==='ascending'?d:-d;});
  body.append(...order);body.classList.toggle('sorted',next!=='none');
 }));
 const text=document.querySelector('#find'),verdict=document.querySelector('#verdict'),
  count=document.querySelector('#count');
 const filter=()=>{let n=0;rows.forEach(r=>{
  const hit=r.textContent.toLowerCase().includes(text.value.toLowerCase())
   &&(!verdict.value||r.dataset.verdicts.split('|').includes(verdict.value));
  r.hidden=!hit;n+=hit;});count.textContent=n+' of '+rows.length+' rows';};
 text.addEventListener('input',filter);verdict.addEventListener('change',filter);
}
$('.uses-log input').forEach(c=>c.addEventListener('change',()=>
 c.closest('figure').classList.toggle('uselog',c.checked)));
$('select.pick').forEach(s=>s.addEventListener('change',()=>$('svg',s.closest('figure')).forEach(g=>{
 g.classList.toggle('picking',s.value!=='');
 $('.series',g).forEach(x=>x.classList.toggle('on',x.dataset.row===s.value&&s.value!==''));})));
const open=()=>{const d=location.hash&&document.getElementById(decodeURIComponent(location.hash.slice(1)));
 if(d&&d.tagName==='DETAILS')d.open=true;};
addEventListener('hashchange',open);open();
const data=document.querySelector('#attention-data');
if(data){
 const all=JSON.parse(data.textContent),sel=n=>document.querySelector('#attention-'+n),
  maps=sel('maps'),said=sel('said');
 const choose=(s,names)=>{s.replaceChildren(...names.map((n,i)=>{const o=document.createElement('option');
  o.value=i;o.textContent=n;return o;}));};
 choose(sel('run'),all.map(r=>r.row+', seed '+r.seed));
 const sentences=()=>{choose(sel('sentence'),all[sel('run').value].sentences.map(
  s=>s.source.join(' ').slice(0,90)));draw();};
 const NS='http://www.w3.org/2000/svg';
 const draw=()=>{
  const s=all[sel('run').value].sentences[sel('sentence').value],kind=sel('kind').value,m=s[kind];
  const across=kind==='decoder'?s.target_in:s.source,down=kind==='encoder'?s.source:s.target_in;
  maps.replaceChildren();
  m.forEach((layer,l)=>layer.forEach((head,h)=>{
   const f=document.createElement('figure'),g=document.createElementNS(NS,'svg'),c=document.createElement('figcaption');
   g.setAttribute('viewBox','0 0 '+across.length+' '+down.length);g.setAttribute('role','img');
   let bits=0;
   head.forEach((row,y)=>row.forEach((w,x)=>{
    const p=w/1000;if(p>0)bits-=p*Math.log2(p)/head.length;
    if(w<4)return;
    const r=document.createElementNS(NS,'rect');
    r.setAttribute('x',x);r.setAttribute('y',y);r.setAttribute('width',1);r.setAttribute('height',1);
    r.setAttribute('fill-opacity',p);r.dataset.said=down[y]+' \\u2192 '+across[x]+': '+p.toFixed(3);
    g.append(r);}));
   const name='layer '+(l+1)+', head '+(h+1);
   c.textContent=name+', entropy '+bits.toFixed(2)+' bit';
   g.setAttribute('aria-label',kind+' attention, '+c.textContent);
   g.addEventListener('mousemove',e=>{if(e.target.dataset.said)said.textContent=name+': '+e.target.dataset.said;});
   f.append(g,c);maps.append(f);}));
 };
 sel('run').addEventListener('change',sentences);sel('sentence').addEventListener('change',draw);
 sel('kind').addEventListener('change',draw);sentences();
}
if(document.body.dataset.live){
 let seen=document.body.dataset.version;
 setInterval(async()=>{try{const v=await(await fetch('/version')).text();
  if(v!==seen){sessionStorage.y=scrollY;location.reload();}}
  catch(e){document.title='(stopped) '+document.title;}},2000);
 if(sessionStorage.y)scrollTo(0,+sessionStorage.y);
}
"""
